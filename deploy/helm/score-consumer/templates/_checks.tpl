{{/* What values may not say together. Each message names the values and what to do. */}}
{{- define "score-consumer.checks" -}}
{{- $values := .Values -}}
{{- $problems := list -}}

{{- if and $values.image.tag $values.image.digest -}}
{{- $problems = append $problems "image.tag and image.digest are both set: leave one empty" -}}
{{- end -}}

{{- $external := $values.secrets.externalSecret -}}
{{- if and $external.enabled $values.secrets.existingSecret -}}
{{- $problems = append $problems "secrets.existingSecret and secrets.externalSecret.enabled are both set: choose one" -}}
{{- end -}}
{{- if and $external.enabled (not $external.storeRef.name) -}}
{{- $problems = append $problems "secrets.externalSecret.storeRef.name is empty: name the store that holds the secrets" -}}
{{- end -}}
{{- if not (or (hasKey $values.secrets.env "DATABASE_URL") (hasKey $values.settings "DATABASE_URL_FILE")) -}}
{{- $problems = append $problems "secrets.env lacks DATABASE_URL" -}}
{{- end -}}
{{- range $name, $ref := $values.secrets.env -}}
{{- if not (get ($ref | default dict) "secret") -}}
{{- if and $external.enabled (not (hasKey $external.remote $name)) -}}
{{- $problems = append $problems (printf "secrets.env.%s is not in secrets.externalSecret.remote, and names no Secret of its own" $name) -}}
{{- else if not (or $external.enabled $values.secrets.existingSecret) -}}
{{- $problems = append $problems (printf "secrets.env.%s has no Secret: set secrets.existingSecret, or secrets.env.%s.secret, or secrets.externalSecret" $name $name) -}}
{{- end -}}
{{- end -}}
{{- range $given := list $name (printf "%s_FILE" $name) -}}
{{- if hasKey $values.settings $given -}}
{{- $problems = append $problems (printf "settings.%s and secrets.env.%s are both set: keep one of them" $given $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := $external.remote -}}
{{- if and $external.enabled (not (hasKey $values.secrets.env $name)) -}}
{{- $problems = append $problems (printf "secrets.externalSecret.remote.%s is used by nobody: add %s to secrets.env" $name $name) -}}
{{- end -}}
{{- end -}}

{{- range $name := list "KAFKA_BOOTSTRAP_SERVERS" "HISTORY_URL" -}}
{{- if not (get $values.settings $name) -}}
{{- $problems = append $problems (printf "settings.%s is empty: the pods would look for it in themselves" $name) -}}
{{- end -}}
{{- end -}}

{{- range $name, $deployment := include "score-consumer.deployments" . | fromYaml -}}
{{- $limit := dig "limits" "memory" "" $deployment.resources -}}
{{- if and $limit (has "worker" $deployment.roles) -}}
{{- $room := include "score-consumer.sessionBytes" $limit | int64 -}}
{{- $largest := include "score-consumer.text" ($deployment.settings.HISTORY_MAX_BYTES | default 16777216) | int64 -}}
{{- $together := include "score-consumer.text" $deployment.settings.SESSIONS_MAX_BYTES | int64 -}}
{{- if gt (max $largest $together | int64) $room -}}
{{- $problems = append $problems (printf "resources.limits.memory %v has room for %d bytes of sessions; HISTORY_MAX_BYTES is %d, SESSIONS_MAX_BYTES %d: raise it to %dMi, or lower them" $limit $room $largest $together (div (add (mul 48 (max $largest $together)) 268435456 1048575) 1048576)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What variables are given, whether by value, from a Secret or as a file's path. */}}
{{- $given := keys $values.secrets.env -}}
{{- range $name, $value := $values.settings -}}
{{- if ne ($value | toString) "" -}}{{- $given = append $given $name -}}{{- end -}}
{{- end -}}
{{- range $values.extraEnv -}}{{- $given = append $given .name -}}{{- end -}}
{{- range $name := $given -}}{{- $given = append $given (trimSuffix "_FILE" $name) -}}{{- end -}}

{{/* What goes with what: as _kafka_problems of consumer/settings.py. */}}
{{- $protocol := $values.settings.KAFKA_SECURITY_PROTOCOL | default "PLAINTEXT" -}}
{{- $mechanism := $values.settings.KAFKA_SASL_MECHANISM | default "" -}}
{{- $key := list "KAFKA_SSL_KEYFILE" "KAFKA_SSL_KEY_PASSWORD" -}}
{{- $tls := concat $key (list "KAFKA_SSL_CAFILE" "KAFKA_SSL_CERTFILE") -}}
{{- $password := list "KAFKA_SASL_USERNAME" "KAFKA_SASL_PASSWORD" -}}
{{- $client := list "KAFKA_OAUTH_TOKEN_URL" "KAFKA_OAUTH_CLIENT_ID" "KAFKA_OAUTH_CLIENT_SECRET" -}}
{{- $hook := list "KAFKA_OAUTH_TOKEN_PROVIDER" -}}
{{- $chosen := printf "KAFKA_SECURITY_PROTOCOL %s" $protocol -}}
{{- $needed := list -}}
{{- $allowed := list -}}
{{- if hasSuffix "SSL" $protocol -}}
{{- $allowed = $tls -}}
{{- range $name := $key -}}
{{- if has $name $given -}}{{- $needed = list "KAFKA_SSL_CERTFILE" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if hasPrefix "SASL_" $protocol -}}
{{- $needed = append $needed "KAFKA_SASL_MECHANISM" -}}
{{- if eq $mechanism "OAUTHBEARER" -}}
{{- $allowed = append $allowed "KAFKA_OAUTH_SCOPE" -}}
{{- $needed = concat $needed (ternary $hook $client (has (first $hook) $given)) -}}
{{- else if $mechanism -}}
{{- $needed = concat $needed $password -}}
{{- end -}}
{{- if $mechanism -}}{{- $chosen = printf "%s and KAFKA_SASL_MECHANISM %s" $chosen $mechanism -}}{{- end -}}
{{- end -}}
{{- range $name := concat (list "KAFKA_SASL_MECHANISM" "KAFKA_OAUTH_SCOPE") $tls $password $client $hook -}}
{{- if and (has $name $needed) (not (has $name $given)) -}}
{{- $secret := or (hasSuffix "PASSWORD" $name) (hasSuffix "SECRET" $name) -}}
{{- $problems = append $problems (printf "%s lacks %s, needed with %s" (ternary "secrets.env" "settings" $secret) $name $chosen) -}}
{{- else if and (has $name $given) (not (has $name (concat $needed $allowed))) -}}
{{- $problems = append $problems (printf "%s has no effect with %s" $name $chosen) -}}
{{- end -}}
{{- end -}}

{{/* The judge, as far as it can be known: the shipped providers, or those of config.providers. */}}
{{- with $values.judge.provider -}}
{{- $providers := $values.config.providers | default ($.Files.Get "files/providers.yaml") -}}
{{- if kindIs "string" $providers -}}{{- $providers = fromYaml $providers -}}{{- end -}}
{{- if hasKey $providers "Error" -}}
{{- $problems = append $problems (printf "config.providers is not YAML: %s" $providers.Error) -}}
{{- else if not (hasKey $providers .) -}}
{{- $problems = append $problems (printf "judge.provider is %s, and in llm_providers.yaml there are: %s; others are given by config.providers" . (keys $providers | sortAlpha | join ", ")) -}}
{{- else -}}
{{- $provider := get $providers . -}}
{{- $variable := get (ternary $provider dict (kindIs "map" $provider)) "api_key_env" | default "" | toString -}}
{{- if and $variable (not (contains "$" $variable)) (not (has $variable $given)) -}}
{{- $problems = append $problems (printf "judge.provider is %s: add %s, its key, to secrets.env" . $variable) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A variable that is set twice is what Kubernetes makes of it. */}}
{{- $twice := list -}}
{{- range $deployment := include "score-consumer.deployments" . | fromYaml -}}
{{- $seen := list -}}
{{- range $variable := include "score-consumer.env" (list $ $deployment.settings) | fromYamlArray -}}
{{- if has $variable.name $seen -}}{{- $twice = append $twice $variable.name -}}{{- end -}}
{{- $seen = append $seen $variable.name -}}
{{- end -}}
{{- end -}}
{{- range $name := uniq $twice -}}
{{- if not (and (hasKey $values.settings $name) (hasKey $values.secrets.env $name)) -}}
{{- $problems = append $problems (printf "%s is set twice, by extraEnv, settings, secrets.env, judge, service or tracing: keep one" $name) -}}
{{- end -}}
{{- end -}}

{{- $covered := list -}}
{{- $workers := 0 -}}
{{- range $name, $deployment := include "score-consumer.deployments" . | fromYaml -}}
{{- $covered = concat $covered $deployment.roles -}}
{{- $minimum := $values.podDisruptionBudget.minAvailable -}}
{{- if and $values.podDisruptionBudget.enabled $minimum (ge (int $minimum) (int $deployment.replicas)) -}}
{{- $problems = append $problems (printf "podDisruptionBudget.minAvailable is %v and %s has %v replicas: no node could be drained; set it lower, or use maxUnavailable" $minimum ($name | default "the Deployment") $deployment.replicas) -}}
{{- end -}}
{{- end -}}
{{- range $role := list "intake" "worker" "relay" -}}
{{- if not (has $role $covered) -}}
{{- $problems = append $problems (printf "roles: no Deployment has the role %s: requests would stay unanswered" $role) -}}
{{- end -}}
{{- end -}}
{{- if and $values.podDisruptionBudget.enabled $values.podDisruptionBudget.minAvailable $values.podDisruptionBudget.maxUnavailable -}}
{{- $problems = append $problems "podDisruptionBudget.minAvailable and maxUnavailable are both set: leave one empty" -}}
{{- end -}}
{{- if and $values.podDisruptionBudget.enabled (not $values.podDisruptionBudget.minAvailable) (not $values.podDisruptionBudget.maxUnavailable) -}}
{{- $problems = append $problems "podDisruptionBudget is enabled and says nothing: set maxUnavailable or minAvailable" -}}
{{- end -}}

{{- $scaling := $values.autoscaling -}}
{{- if ne $scaling.kind "none" -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- $problems = append $problems (printf "autoscaling.minReplicas %v is above autoscaling.maxReplicas %v" $scaling.minReplicas $scaling.maxReplicas) -}}
{{- end -}}
{{- range $name, $own := $values.roles -}}
{{- if and $own (has "worker" ($own.roles | default list)) $own.replicas -}}
{{- $problems = append $problems (printf "roles.%s.replicas is set, and autoscaling.kind is %s: leave it out" $name $scaling.kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $scaling.kind "keda" -}}
{{- if and (not $scaling.keda.prometheusAddress) (not (int $scaling.keda.lagThreshold)) -}}
{{- $problems = append $problems "autoscaling.kind is keda without a trigger: set autoscaling.keda.prometheusAddress or lagThreshold" -}}
{{- end -}}
{{- if and (int $scaling.keda.lagThreshold) (ne $protocol "PLAINTEXT") (not $scaling.keda.kafkaAuthentication) -}}
{{- $problems = append $problems (printf "autoscaling.keda.kafkaAuthentication is empty, and the brokers ask for %s: name a TriggerAuthentication, or set lagThreshold to 0" $protocol) -}}
{{- end -}}
{{- end -}}

{{- $ingress := $values.ingress -}}
{{- if $ingress.enabled -}}
{{- if not $ingress.host -}}
{{- $problems = append $problems "ingress.host is empty: name the host under which the API is reached" -}}
{{- end -}}
{{- if not (include "score-consumer.servesApi" .) -}}
{{- $problems = append $problems "ingress.enabled, and no Deployment has the role api: add it to roles" -}}
{{- end -}}
{{- $tokens := or (hasKey $values.secrets.env "API_TOKENS") (hasKey $values.settings "API_TOKENS_FILE") -}}
{{- if not (or $tokens $ingress.withoutTokens) -}}
{{- $problems = append $problems "ingress.enabled, and whoever reaches it may do everything: put API_TOKENS into secrets.env, or set ingress.withoutTokens where a proxy in front decides" -}}
{{- end -}}
{{- if and $tokens $ingress.withoutTokens -}}
{{- $problems = append $problems "ingress.withoutTokens has no effect: API_TOKENS is given" -}}
{{- end -}}
{{- end -}}

{{- $network := $values.networkPolicy -}}
{{- if and $network.enabled (not $network.from) (not $network.egress) -}}
{{- $problems = append $problems "networkPolicy.enabled, and it keeps nobody out: give networkPolicy.from, networkPolicy.egress, or both" -}}
{{- end -}}

{{- if and $values.tracing.enabled (not $values.tracing.endpoint) -}}
{{- $problems = append $problems "tracing.endpoint is empty: name the collector, as http://host:4318" -}}
{{- end -}}
{{- if and $values.tracing.endpoint (not $values.tracing.enabled) -}}
{{- $problems = append $problems "tracing.endpoint has no effect: set tracing.enabled too" -}}
{{- end -}}

{{- if and $values.kafkaTopics.enabled (not $values.kafkaTopics.cluster) -}}
{{- $problems = append $problems "kafkaTopics.cluster is empty: name the Kafka resource that the topics belong to" -}}
{{- end -}}
{{- $insync := get $values.kafkaTopics.config "min.insync.replicas" -}}
{{- if and $values.kafkaTopics.enabled $insync (gt (int $insync) (int $values.kafkaTopics.replicas)) -}}
{{- $problems = append $problems (printf "kafkaTopics.config: min.insync.replicas %v is above kafkaTopics.replicas %v: nothing could be written" $insync $values.kafkaTopics.replicas) -}}
{{- end -}}

{{- range $id, $profile := $values.profiles -}}
{{- if and (kindIs "map" $profile) (ne (get $profile "id" | toString) $id) -}}
{{- $problems = append $problems (printf "profiles.%s: its id is %q: use the id as the key" $id (get $profile "id" | toString)) -}}
{{- end -}}
{{- end -}}

{{- $alerts := include "score-consumer.alertNames" . | fromJsonArray -}}
{{- range $name := concat $values.prometheusRule.disabled (keys $values.prometheusRule.overrides | sortAlpha) -}}
{{- if not (has $name $alerts) -}}
{{- $problems = append $problems (printf "prometheusRule: there is no alert %s; there are: %s" $name (join ", " $alerts)) -}}
{{- end -}}
{{- end -}}

{{- if $problems -}}
{{- fail (printf "\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end }}

{{- define "score-consumer.alertNames" -}}
{{- $names := list -}}
{{- range $group := (.Files.Get "files/alerts.yaml" | fromYaml).groups -}}
{{- range $rule := $group.rules -}}
{{- if $rule.alert }}{{ $names = append $names $rule.alert }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end }}
