"""One real Apache Kafka broker, from Maven Central: the broker that production has.

Maven fetches the jars once (about 45 MB) into `.cache/` of the repository; they are fetched anew
only when `pom.xml` changes. Needs Java 17 or later.
"""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from signal import SIGTERM

from consumer.demo.servers import HOST, EmbeddedServer, ServerError, free_port, kafka_answers

POM = Path(__file__).with_name("pom.xml")
CACHE = Path(__file__).parents[2] / ".cache"

#: Largest record the broker takes, so that a 20 MB one reaches the consumer.
MAX_RECORD_BYTES = 25 * 1024 * 1024

# One node does everything, and nobody waits for members, replicas or sessions that never come.
_CONFIG = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
# A client is sent to the advertised address, so a proxy needs a listener of its own.
listeners=PLAINTEXT://{host}:{port},PROXIED://{host}:{behind_proxy},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port},PROXIED://{host}:{proxy_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data_dir}/logs

auto.create.topics.enable=true
num.partitions=4
message.max.bytes={max_record_bytes}
replica.fetch.max.bytes={max_record_bytes}

offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1

group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
# After a kill, the controller takes no new broker before the old one's session is over.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500

num.network.threads=2
num.io.threads=4
# 128 MB by default, a quarter of the heap.
log.cleaner.dedupe.buffer.size=16777216
"""

_JVM = (
    "-Xms256m",
    "-Xmx512m",
    # Both are about a quick start, not about speed later.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-XX:+ExitOnOutOfMemoryError",
    # Otherwise a killed broker leaves a file in the system's temporary folder.
    "-XX:-UsePerfData",
)


class ApacheKafka(EmbeddedServer):
    """A broker and controller in one JVM. Records and committed offsets survive `stop` and `kill`.

    Unknown topics are created on first use, with 4 partitions. Transactions work, and records of
    `MAX_RECORD_BYTES` pass. A proxy from `proxy_port` to `behind_proxy` is a second way to it.
    """

    name = "apache-kafka"
    start_timeout = 60.0
    stop_timeout = 20.0
    stop_signal = SIGTERM

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._controller_port = free_port()
        # Whoever connects to `behind_proxy` is told that the broker is at `proxy_port`.
        self.behind_proxy = free_port()
        self.proxy_port = free_port()
        self._config = self.data_dir / "server.properties"

    @property
    def bootstrap(self) -> str:
        """The broker as host:port."""
        return f"{HOST}:{self.port}"

    def _prepare(self) -> None:
        super()._prepare()
        self._config.write_text(self._properties())
        if not (self.data_dir / "logs" / "meta.properties").exists():
            self._format()

    def _properties(self) -> str:
        return _CONFIG.format(
            host=HOST,
            port=self.port,
            controller_port=self._controller_port,
            behind_proxy=self.behind_proxy,
            proxy_port=self.proxy_port,
            data_dir=self.data_dir,
            max_record_bytes=MAX_RECORD_BYTES,
        )

    def _format(self, *more: str) -> None:
        cluster_id = "c2NvcmUtY29uc3VtZXItMQ"  # 16 bytes in base64, as Kafka wants it
        options = ["format", "--cluster-id", cluster_id, "--config", str(self._config), *more]
        with self.log.open("ab") as log:
            done = subprocess.run(
                self._launched(self._java("kafka.tools.StorageTool", *options)),
                stdout=log,
                stderr=log,
                check=False,
            )
        if done.returncode:
            raise ServerError(self._obituary("could not format its storage"))

    def _command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self._config))

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        options = [*_JVM, f"-Djava.io.tmpdir={self.data_dir}", "-cp", f"{fetch_jars()}/*"]
        return [_program("java"), *options, main_class, *arguments]

    def _answers(self) -> bool:
        return kafka_answers(self.port)


def fetch_jars() -> Path:
    """The folder of the broker's jars, by Maven if it is not in the cache.

    Raises ServerError with Maven's last words if that fails.
    """
    jars = CACHE / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    if jars.exists():
        return jars
    CACHE.mkdir(exist_ok=True)
    # Fetched aside and renamed: a run that is interrupted leaves no half-filled cache.
    with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
        maven = [_program("mvn"), "--batch-mode", "-Dstyle.color=never", f"--file={POM}"]
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={unfinished}/jars"]
        done = subprocess.run([*maven, *goal], capture_output=True, text=True, check=False)
        if done.returncode:
            complaint = done.stdout.partition("[ERROR] ")[2] or done.stderr
            reason, *_ = complaint.splitlines() or ["without a word"]
            raise ServerError(f"Maven failed: {reason}")
        try:
            Path(unfinished, "jars").rename(jars)
        except OSError:
            if not jars.exists():  # else another test process was faster
                raise
    return jars


def _program(name: str) -> str:
    if path := shutil.which(name):
        return path
    raise ServerError(f"{name} is not installed")
