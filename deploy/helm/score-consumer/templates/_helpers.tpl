{{- define "score-consumer.name" -}}
{{- .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name)) | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "score-consumer.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "score-consumer.labels" -}}
{{ include "score-consumer.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "score-consumer.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "score-consumer.serviceAccount" -}}
{{- $account := .Values.serviceAccount -}}
{{- $account.name | default (ternary (include "score-consumer.name" .) "default" $account.create) }}
{{- end }}

{{/* The Deployments, as a map: name's suffix -> {roles, replicas, resources, settings, scaled}. */}}
{{- define "score-consumer.deployments" -}}
{{- $root := . -}}
{{- $deployments := dict -}}
{{- $wanted := 0 -}}
{{- range $name, $own := .Values.roles | default (dict "" (dict "roles" (list "intake" "worker" "relay" "api"))) -}}
{{- if $own -}}
{{- $scaled := and (ne $root.Values.autoscaling.kind "none") (has "worker" $own.roles) -}}
{{- $replicas := $own.replicas | default $root.Values.replicas -}}
{{- $resources := $own.resources | default $root.Values.resources -}}
{{- $settings := mergeOverwrite (deepCopy $root.Values.settings) ($own.settings | default dict) -}}
{{- $limit := dig "limits" "memory" "" $resources -}}
{{- if and $limit (has "worker" $own.roles) (not (hasKey $settings "SESSIONS_MAX_BYTES")) -}}
{{- $_ := set $settings "SESSIONS_MAX_BYTES" (include "score-consumer.sessionBytes" $limit) -}}
{{- end -}}
{{- $replicas = ternary $root.Values.autoscaling.minReplicas $replicas $scaled -}}
{{- $wanted = add $wanted (int $replicas) -}}
{{- $_ := set $deployments $name (dict
      "roles" $own.roles
      "scaled" $scaled
      "replicas" $replicas
      "resources" $resources
      "settings" $settings) -}}
{{- end -}}
{{- end -}}
{{- range $deployments -}}
{{- $_ := set . "settings" (merge .settings (dict "REPLICAS_WANTED" $wanted)) -}}
{{- end -}}
{{- toYaml $deployments -}}
{{- end }}

{{/* Bytes of a quantity, such as 1Gi. */}}
{{- define "score-consumer.bytes" -}}
{{- $text := include "score-consumer.text" . -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (float64 $number) (get $units (trimPrefix $number $text) | default 1 | float64) | int64 -}}
{{- end }}

{{/* Bytes of sessions that may be under way with so much memory: a process takes 256 MiB without any, and
48 times their size for sessions made to do harm; see docs/operations.md. */}}
{{- define "score-consumer.sessionBytes" -}}
{{- div (sub (include "score-consumer.bytes" . | int64) 268435456) 48 | max 0 -}}
{{- end }}

{{/* Not empty where some Deployment has the role api. */}}
{{- define "score-consumer.servesApi" -}}
{{- range $deployment := include "score-consumer.deployments" . | fromYaml -}}
{{- if has "api" $deployment.roles -}}yes{{- end -}}
{{- end -}}
{{- end }}

{{/* A number as the consumer reads it: never 6.7e+07. */}}
{{- define "score-consumer.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end }}

{{/* The Secret and key of a variable. Takes (list root variable {secret, key}). */}}
{{- define "score-consumer.secretKeyRef" -}}
{{- $root := index . 0 -}}
{{- $ref := index . 2 | default dict -}}
{{- $ours := ternary (include "score-consumer.name" $root) $root.Values.secrets.existingSecret $root.Values.secrets.externalSecret.enabled -}}
name: {{ $ref.secret | default $ours }}
key: {{ $ref.key | default (index . 1) }}
{{- end }}

{{/* The environment of a container. Takes (list root settings). */}}
{{- define "score-consumer.env" -}}
{{- $root := index . 0 -}}
{{- range $name, $value := index . 1 }}
- name: {{ $name }}
  value: {{ include "score-consumer.text" $value | quote }}
{{- end }}
- name: HTTP_PORT
  value: {{ $root.Values.service.port | quote }}
{{- with $root.Values.judge.provider }}
- name: SCORING_LLM_PROVIDER
  value: {{ . | quote }}
{{- end }}
{{- with $root.Values.judge.model }}
- name: SCORING_LLM_MODEL
  value: {{ . | quote }}
{{- end }}
{{- if $root.Values.tracing.enabled }}
- name: TRACING_ENABLED
  value: "true"
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ $root.Values.tracing.endpoint | quote }}
{{- end }}
{{- range $name, $ref := $root.Values.secrets.env }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      {{- include "score-consumer.secretKeyRef" (list $root $name $ref) | nindent 6 }}
{{- end }}
{{- with $root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What every pod of ours has in common: who it is, and what it must not do. */}}
{{- define "score-consumer.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: {{ .Values.tmpSizeLimit }}
{{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Image, security and mounts of every container of ours. */}}
{{- define "score-consumer.container" -}}
image: {{ include "score-consumer.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A part of the configuration: what is given as a map becomes YAML. */}}
{{- define "score-consumer.content" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- define "score-consumer.configFiles" -}}
{{- with .Values.config.scoring }}
scoring_config.yaml: |
  {{- include "score-consumer.content" . | nindent 2 }}
{{- end }}
{{- with .Values.config.providers }}
llm_providers.yaml: |
  {{- include "score-consumer.content" . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "score-consumer.profileFiles" -}}
{{- range $id, $profile := .Values.profiles }}
{{ $id }}.yaml: |
  {{- include "score-consumer.content" $profile | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where the configuration that values give lies in a container, in place of the shipped one. */}}
{{- define "score-consumer.configMounts" -}}
{{- if .Values.config.scoring }}
- {name: config, mountPath: /app/config/scoring_config.yaml, subPath: scoring_config.yaml, readOnly: true}
{{- end }}
{{- if .Values.config.providers }}
- {name: config, mountPath: /app/config/llm_providers.yaml, subPath: llm_providers.yaml, readOnly: true}
{{- end }}
{{- if .Values.profiles }}
- {name: profiles, mountPath: /app/config/profiles, readOnly: true}
{{- end }}
{{- end }}

{{- define "score-consumer.configVolumes" -}}
{{- if or .Values.config.scoring .Values.config.providers }}
- {name: config, configMap: {name: {{ include "score-consumer.name" . }}-config}}
{{- end }}
{{- if .Values.profiles }}
- {name: profiles, configMap: {name: {{ include "score-consumer.name" . }}-profiles}}
{{- end }}
{{- end }}
