import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client, driven by JSON lines as {@code programs.py} sends them. */
public final class Client {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> transactions = new HashMap<>();

    private Client(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client(arguments[0]);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                client.run(JSON.readTree(line), answer);
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            out.println(answer);
        }
    }

    private void run(JsonNode command, ObjectNode answer) throws Exception {
        switch (command.get("do").asText()) {
            case "produce" -> produce(command);
            case "end" -> end(command);
            case "read" -> read(command, answer);
            default -> throw new IllegalArgumentException(command.toString());
        }
    }

    private void produce(JsonNode command) throws Exception {
        String transaction = command.get("transaction").asText();
        var producer = new KafkaProducer<byte[], byte[]>(producing(command, transaction));
        if (!transaction.isEmpty()) {
            transactions.put(transaction, producer);
            producer.initTransactions();
            producer.beginTransaction();
        }
        List<Future<?>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            sent.add(producer.send(message(command, record)));
        }
        producer.flush();
        for (Future<?> one : sent) {
            one.get();
        }
        if (transaction.isEmpty()) {
            producer.close();
        }
    }

    private Map<String, Object> producing(JsonNode command, String transaction) {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", bootstrap);
        options.put("key.serializer", ByteArraySerializer.class);
        options.put("value.serializer", ByteArraySerializer.class);
        options.put("compression.type", command.get("codec").asText());
        options.put("enable.idempotence", true);
        options.put("linger.ms", 1000); // `flush` ends it
        options.put("batch.size", 1_000_000);
        options.put("metadata.max.age.ms", 1000);
        if (!transaction.isEmpty()) {
            options.put("transactional.id", transaction);
            options.put("transaction.timeout.ms", 300_000);
        }
        return options;
    }

    private static ProducerRecord<byte[], byte[]> message(JsonNode command, JsonNode record) {
        String topic = command.get("topic").asText();
        int partition = command.get("partition").asInt();
        var made = new ProducerRecord<>(topic, partition, bytes(record.get("key")), bytes(record.get("value")));
        for (JsonNode header : record.get("headers")) {
            String name = new String(bytes(header.get(0)), StandardCharsets.UTF_8);
            made.headers().add(name, bytes(header.get(1)));
        }
        return made;
    }

    private void end(JsonNode command) {
        try (var producer = transactions.remove(command.get("transaction").asText())) {
            if (command.get("commit").asBoolean()) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    private void read(JsonNode command, ObjectNode answer) {
        var records = answer.putArray("records");
        try (var consumer = new KafkaConsumer<byte[], byte[]>(reading())) {
            List<TopicPartition> places = new ArrayList<>();
            for (JsonNode topic : command.get("topics")) {
                consumer.partitionsFor(topic.asText())
                        .forEach(p -> places.add(new TopicPartition(p.topic(), p.partition())));
            }
            consumer.assign(places);
            consumer.seekToBeginning(places);
            var ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> records.add(told(record)));
            }
        }
    }

    private Map<String, Object> reading() {
        return Map.of(
                "bootstrap.servers", bootstrap,
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "isolation.level", "read_committed",
                "enable.auto.commit", false);
    }

    private static ObjectNode told(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode told = JSON.createObjectNode();
        told.put("topic", record.topic());
        told.put("partition", record.partition());
        told.put("offset", record.offset());
        told.put("key", text(record.key()));
        told.put("value", text(record.value()));
        var headers = told.putArray("headers");
        for (Header header : record.headers()) {
            String name = text(header.key().getBytes(StandardCharsets.UTF_8));
            headers.addArray().add(name).add(text(header.value()));
        }
        return told;
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
