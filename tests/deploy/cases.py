"""Values that the chart must render: each optional part on and off, and what users combine."""

from __future__ import annotations

from typing import Any

LABELS = {"team": "agents"}
PROFILE = {
    "id": "mine",
    "version": 1,
    "match_labels": ["*"],
    "method": "heuristic",
    "criteria": [{"id": "tools", "weight": 1, "scorer": "tool_count"}],
}
SPLIT = {
    "intake": {"roles": ["intake"]},
    "worker": {"roles": ["worker"], "settings": {"GRACE_SECONDS": 90.5, "WORKER_SLOTS": 64}},
    "relay": {"roles": ["relay", "api"], "replicas": 1, "resources": {"limits": {"memory": "1Gi"}}},
}
SASL: dict[str, Any] = {
    "settings": {
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SSL_CAFILE": "/kafka/ca.crt",
        "HISTORY_MAX_BYTES": 15000000,
    },
    "secrets": {
        "env": {
            "DATABASE_URL": {"secret": "scores-db-app", "key": "uri"},
            "KAFKA_SASL_USERNAME": {"secret": "scores-kafka", "key": "user"},
            "KAFKA_SASL_PASSWORD": {"secret": "scores-kafka", "key": "password"},
        },
    },
    "extraVolumes": [{"name": "kafka-ca", "secret": {"secretName": "kafka-ca"}}],
    "extraVolumeMounts": [{"name": "kafka-ca", "mountPath": "/kafka", "readOnly": True}],
}
EXTERNAL: dict[str, Any] = {
    "secrets": {
        "existingSecret": "",
        "env": {"DATABASE_URL": {}, "OPENAI_API_KEY": {"key": "openai"}},
        "externalSecret": {
            "enabled": True,
            "storeRef": {"name": "vault", "kind": "ClusterSecretStore"},
            "remote": {
                "DATABASE_URL": {"key": "scores/db", "property": "url"},
                "OPENAI_API_KEY": {"key": "llm/openai"},
            },
        },
    },
}
KEDA: dict[str, Any] = {
    "kind": "keda",
    "maxReplicas": 30,
    "keda": {"prometheusAddress": "http://prometheus:9090"},
}
INGRESS: dict[str, Any] = {
    "ingress": {
        "enabled": True,
        "host": "scores.example",
        "tlsSecret": "scores-tls",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
    },
    "settings": {"API_CORS_ORIGINS": "https://dashboard.example"},
    "secrets": {"existingSecret": "scores", "env": {"DATABASE_URL": {}, "API_TOKENS": {}}},
}
MONITORED: dict[str, Any] = {
    "serviceMonitor": {"enabled": True, "labels": LABELS},
    "prometheusRule": {
        "enabled": True,
        "labels": LABELS,
        "runbooks": "https://docs.example/runbooks",
        "disabled": ["ScoringScoreDrift"],
        "overrides": {"ScoringBacklogOld": {"for": "20m", "severity": "critical"}},
    },
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Agents"}},
}

CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "split": {"roles": SPLIT},
    "split and scaled": {"roles": SPLIT, "autoscaling": KEDA},
    "scaled by lag alone": {"autoscaling": {"kind": "keda"}},
    "scaled by HPA": {"autoscaling": {"kind": "hpa", "minReplicas": 3}},
    "Kafka with a password": SASL,
    "Kafka with a password, scaled": {
        **SASL,
        "autoscaling": {"kind": "keda", "keda": {"kafkaAuthentication": "kafka"}},
    },
    "external secrets": EXTERNAL,
    "database from a file": {
        "settings": {"DATABASE_URL_FILE": "/db/url"},
        "secrets": {"env": {"DATABASE_URL": None}},
    },
    "own configuration": {
        "judge": {"provider": "local", "model": "m"},
        "config": {
            "scoring": {"scoring": {"llm_provider": "${SCORING_LLM_PROVIDER:-}"}},
            "providers": "local:\n  type: openai\n  base_url: http://llm:8000/v1\n  model: m\n",
        },
        "profiles": {"mine": PROFILE},
        "extraEnv": [{"name": "LLM_BASE_URL", "value": "http://llm:8000/v1"}],
    },
    "monitored": MONITORED,
    "reached from outside": {"roles": SPLIT, **INGRESS},
    "traced": {
        "tracing": {"enabled": True, "endpoint": "http://otel-collector:4318"},
        "secrets": {
            "existingSecret": "s",
            "env": {"DATABASE_URL": {}, "OTEL_EXPORTER_OTLP_HEADERS": {}},
        },
        "extraEnv": [{"name": "OTEL_TRACES_SAMPLER", "value": "parentbased_traceidratio"}],
    },
    "closed network": {
        "networkPolicy": {
            "enabled": True,
            "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "egress": [{"ports": [{"port": 5432}, {"port": 9092}, {"port": 443}]}],
        }
    },
    "closed to the inside": {
        "networkPolicy": {"enabled": True, "from": [{"podSelector": {"matchLabels": LABELS}}]}
    },
    "switched off": {"settings": {"SCORING_ENABLED": False}},
    "topics": {
        "kafkaTopics": {"enabled": True, "cluster": "events"},
        "settings": {"TOPIC_QUALITY_RISK": "Agents.quality_risk"},
    },
    "pinned and placed": {
        "fullnameOverride": "judge",
        "image": {"digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "registry"}],
        "commonLabels": LABELS,
        "podLabels": LABELS,
        "podAnnotations": LABELS,
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "agents", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": ""},
        "serviceAccount": {"name": "judge", "annotations": LABELS},
        "service": {"port": 9000},
        "topologySpread": [],
    },
    "bare": {
        "migration": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "serviceAccount": {"create": False},
        "replicas": 1,
    },
}

# What must not render, and what is said then.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "tag and digest": (
        {"image": {"tag": "1", "digest": "sha256:" + "0" * 64}},
        "image.tag and image.digest are both set: leave one empty",
    ),
    "no Secret": (
        {"secrets": {}},
        "secrets.env.DATABASE_URL has no Secret: set secrets.existingSecret",
    ),
    "no database": (
        {"secrets": {"existingSecret": "s", "env": {"DATABASE_URL": None}}},
        "secrets.env lacks DATABASE_URL",
    ),
    "two sources of secrets": (
        {"secrets": {**EXTERNAL["secrets"], "existingSecret": "scores"}},
        "secrets.existingSecret and secrets.externalSecret.enabled are both set: choose one",
    ),
    "no store": (
        {
            "secrets": {
                "externalSecret": {"enabled": True, "remote": {"DATABASE_URL": {"key": "k"}}}
            }
        },
        "secrets.externalSecret.storeRef.name is empty",
    ),
    "not in the store": (
        {"secrets": {"externalSecret": {"enabled": True, "storeRef": {"name": "vault"}}}},
        "secrets.env.DATABASE_URL is not in secrets.externalSecret.remote",
    ),
    "in the store for nobody": (
        {"secrets": {"externalSecret": {"enabled": True, "remote": {"OTHER": {"key": "k"}}}}},
        "secrets.externalSecret.remote.OTHER is used by nobody",
    ),
    "setting and secret": (
        {
            "settings": {"KAFKA_SASL_USERNAME": "me"},
            "secrets": {"existingSecret": "s", "env": {"KAFKA_SASL_USERNAME": {}}},
        },
        "settings.KAFKA_SASL_USERNAME and secrets.env.KAFKA_SASL_USERNAME are both set",
    ),
    "SASL without a mechanism": (
        {"settings": {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}},
        "settings lacks KAFKA_SASL_MECHANISM, needed with KAFKA_SECURITY_PROTOCOL SASL_SSL",
    ),
    "mechanism without SASL": (
        {"settings": {"KAFKA_SASL_MECHANISM": "PLAIN"}},
        "KAFKA_SASL_MECHANISM has no effect with KAFKA_SECURITY_PROTOCOL PLAINTEXT",
    ),
    "no password": (
        {"settings": {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "PLAIN"}},
        "secrets.env lacks KAFKA_SASL_PASSWORD, needed with KAFKA_SECURITY_PROTOCOL SASL_SSL and",
    ),
    "a password of nobody": (
        {
            "settings": {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "PLAIN"},
            "secrets": {"existingSecret": "s", "env": {"KAFKA_SASL_PASSWORD": {}}},
        },
        "settings lacks KAFKA_SASL_USERNAME",
    ),
    "OAuth without a client": (
        {
            "settings": {
                "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
                "KAFKA_SASL_MECHANISM": "OAUTHBEARER",
            }
        },
        "secrets.env lacks KAFKA_OAUTH_CLIENT_SECRET",
    ),
    "a CA for plain text": (
        {"settings": {"KAFKA_SSL_CAFILE": "/kafka/ca.crt"}},
        "KAFKA_SSL_CAFILE has no effect with KAFKA_SECURITY_PROTOCOL PLAINTEXT",
    ),
    "a key without its certificate": (
        {"settings": {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEYFILE": "/kafka/key"}},
        "settings lacks KAFKA_SSL_CERTFILE",
    ),
    "no brokers": (
        {"settings": {"KAFKA_BOOTSTRAP_SERVERS": ""}},
        "settings.KAFKA_BOOTSTRAP_SERVERS is empty",
    ),
    "a judge that nobody knows": (
        {"judge": {"provider": "opanai"}},
        "judge.provider is opanai, and in llm_providers.yaml there are: anthropic, gemini, openai",
    ),
    "a judge that is not in your file": (
        {"judge": {"provider": "openai"}, "config": {"providers": "local:\n  model: m\n"}},
        "judge.provider is openai, and in llm_providers.yaml there are: local; ",
    ),
    "providers that can't be read": (
        {"judge": {"provider": "local"}, "config": {"providers": "local: {"}},
        "config.providers is not YAML",
    ),
    "a judge without its key": (
        {"judge": {"provider": "anthropic"}},
        "judge.provider is anthropic: add ANTHROPIC_API_KEY, its key, to secrets.env",
    ),
    "a judge of yours without its key": (
        {
            "judge": {"provider": "local"},
            "config": {"providers": {"local": {"api_key_env": "LOCAL_KEY"}}},
        },
        "judge.provider is local: add LOCAL_KEY, its key, to secrets.env",
    ),
    "a variable twice": (
        {"extraEnv": [{"name": "LOG_LEVEL", "value": "DEBUG"}]},
        "LOG_LEVEL is set twice",
    ),
    "an open network": (
        {"networkPolicy": {"enabled": True}},
        "networkPolicy.enabled, and it keeps nobody out",
    ),
    "a role that nobody has": (
        {"roles": {"all": {"roles": ["intake", "worker"]}}},
        "roles: no Deployment has the role relay: requests would stay unanswered",
    ),
    "a node that can't be drained": (
        {"podDisruptionBudget": {"minAvailable": 2, "maxUnavailable": ""}},
        "podDisruptionBudget.minAvailable is 2 and the Deployment has 2 replicas",
    ),
    "a scaled node that can't be drained": (
        {
            "replicas": 5,
            "autoscaling": {"kind": "hpa"},
            "podDisruptionBudget": {"minAvailable": 3, "maxUnavailable": ""},
        },
        "podDisruptionBudget.minAvailable is 3 and the Deployment has 2 replicas",
    ),
    "two budgets": (
        {"podDisruptionBudget": {"minAvailable": 1}},
        "podDisruptionBudget.minAvailable and maxUnavailable are both set",
    ),
    "no budget": (
        {"podDisruptionBudget": {"maxUnavailable": ""}},
        "podDisruptionBudget is enabled and says nothing",
    ),
    "fewer at most than at least": (
        {"autoscaling": {"kind": "hpa", "minReplicas": 4, "maxReplicas": 3}},
        "autoscaling.minReplicas 4 is above autoscaling.maxReplicas 3",
    ),
    "scaled and counted": (
        {
            "roles": {"all": {"roles": ["intake", "worker", "relay"], "replicas": 3}},
            "autoscaling": KEDA,
        },
        "roles.all.replicas is set, and autoscaling.kind is keda: leave it out",
    ),
    "scaled by nothing": (
        {"autoscaling": {"kind": "keda", "keda": {"lagThreshold": 0}}},
        "autoscaling.kind is keda without a trigger",
    ),
    "lag behind a password": (
        {**SASL, "autoscaling": KEDA},
        "autoscaling.keda.kafkaAuthentication is empty, and the brokers ask for SASL_SSL",
    ),
    "an open door": (
        {"ingress": {"enabled": True, "host": "scores.example"}},
        "whoever reaches it may do everything: put API_TOKENS into secrets.env",
    ),
    "a door that is open and locked": (
        {**INGRESS, "ingress": {**INGRESS["ingress"], "withoutTokens": True}},
        "ingress.withoutTokens has no effect: API_TOKENS is given",
    ),
    "a door to nowhere": (
        {**INGRESS, "roles": {"all": {"roles": ["intake", "worker", "relay"]}}},
        "no Deployment has the role api",
    ),
    "a door that nobody finds": (
        {**INGRESS, "ingress": {"enabled": True}},
        "ingress.host is empty",
    ),
    "traces to nowhere": ({"tracing": {"enabled": True}}, "tracing.endpoint is empty"),
    "a collector that gets nothing": (
        {"tracing": {"endpoint": "http://otel-collector:4318"}},
        "tracing.endpoint has no effect: set tracing.enabled too",
    ),
    "topics of no cluster": (
        {"kafkaTopics": {"enabled": True}},
        "kafkaTopics.cluster is empty",
    ),
    "topics that can't be written": (
        {"kafkaTopics": {"enabled": True, "cluster": "c", "replicas": 1}},
        "min.insync.replicas 2 is above kafkaTopics.replicas 1",
    ),
    "a profile of another name": (
        {"profiles": {"yours": PROFILE}},
        'profiles.yours: its id is "mine": use the id as the key',
    ),
    "an unknown alert": (
        {"prometheusRule": {"disabled": ["ScoringDwon"]}},
        "prometheusRule: there is no alert ScoringDwon; there are: ScoringDown, ",
    ),
}

# Who we are to Kafka: the chart must refuse what the consumer refuses. Files are those of the test.
_WAYS: list[dict[str, str]] = [
    {},
    {"KAFKA_SSL_CAFILE": "file", "KAFKA_SSL_CERTFILE": "file", "KAFKA_SSL_KEYFILE": "file"},
    {"KAFKA_SSL_KEY_PASSWORD": "x"},
    {"KAFKA_SASL_USERNAME": "me", "KAFKA_SASL_PASSWORD": "x"},
    {"KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_PASSWORD": "x"},
    {
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_USERNAME": "me",
        "KAFKA_SASL_PASSWORD": "x",
    },
    {"KAFKA_SASL_MECHANISM": "OAUTHBEARER", "KAFKA_OAUTH_SCOPE": "events"},
    {
        "KAFKA_SASL_MECHANISM": "OAUTHBEARER",
        "KAFKA_OAUTH_TOKEN_URL": "https://id.example",
        "KAFKA_OAUTH_CLIENT_ID": "me",
        "KAFKA_OAUTH_CLIENT_SECRET": "x",
    },
    {"KAFKA_SASL_MECHANISM": "OAUTHBEARER", "KAFKA_OAUTH_TOKEN_PROVIDER": "mine:tokens"},
]
KAFKA_ACCESS = [
    {"KAFKA_SECURITY_PROTOCOL": protocol, **way}
    for protocol, ways in {
        "PLAINTEXT": [_WAYS[1], _WAYS[4]],
        "SSL": _WAYS[:4],
        "SASL_PLAINTEXT": [_WAYS[1], _WAYS[5]],
        "SASL_SSL": _WAYS,
    }.items()
    for way in ways
]

# What the schema refuses: names and values that the consumer would refuse, and misspelt values.
AGAINST_SCHEMA: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown setting": ({"settings": {"WORKER_SLOT": 1}}, "WORKER_SLOT"),
    "a setting out of range": ({"settings": {"WORKER_SLOTS": 0}}, "settings/WORKER_SLOTS"),
    "a setting that is no number": ({"settings": {"GRACE_SECONDS": "soon"}}, "GRACE_SECONDS"),
    "a password as a setting": ({"settings": {"DATABASE_URL": "postgresql://"}}, "DATABASE_URL"),
    "an unknown role": ({"roles": {"x": {"roles": ["wroker"]}}}, "roles/x"),
    "an unknown value": ({"replica": 3}, "replica"),
    "an unknown part": ({"image": {"repo": "x"}}, "repo"),
    "a collector without a scheme": (
        {"tracing": {"enabled": True, "endpoint": "collector:4318"}},
        "tracing/endpoint",
    ),
    "an objective that nobody misses": (
        {"prometheusRule": {"objectives": {"answered": 0.5}}},
        "objectives/answered",
    ),
    "an objective of everything": (
        {"prometheusRule": {"objectives": {"inTime": 1}}},
        "objectives/inTime",
    ),
    "a time that is not counted": (
        {"prometheusRule": {"objectives": {"seconds": 299}}},
        "objectives/seconds",
    ),
    "a tag as digest": ({"image": {"digest": "latest"}}, "image/digest"),
}
