{{/* The name of everything that we make. The label app.kubernetes.io/name is fixed: the policy knows us by it. */}}
{{- define "rebalancer.fullname" -}}
{{- if contains "rebalancer" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-rebalancer" (.Release.Name | trunc 39 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "rebalancer.selectorLabels" -}}
app.kubernetes.io/name: rebalancer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rebalancer.labels" -}}
{{ include "rebalancer.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "rebalancer.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "rebalancer.policy" -}}
{{ .Values.policy | default (.Files.Get "files/policy.yaml") }}
{{- end }}

{{/* The policy as data. What it says is checked by the program; here only that it is YAML with a cluster. */}}
{{- define "rebalancer.checkedPolicy" -}}
{{- $policy := fromYaml (include "rebalancer.policy" .) }}
{{- if hasKey $policy "Error" }}{{ fail (printf "policy: not YAML: %s" $policy.Error) }}{{ end }}
{{- if not (kindIs "string" $policy.cluster) }}{{ fail "policy: names no cluster: give a policy file, --set-file policy=policy.yaml" }}{{ end }}
{{- toJson $policy }}
{{- end }}

{{/* Empty unless usage comes from metrics-server. */}}
{{- define "rebalancer.readsMetricsServer" -}}
{{- $policy := fromJson (include "rebalancer.checkedPolicy" .) }}
{{- if eq "MetricsServer" (toString (dig "usage" "source" "Prometheus" $policy)) }}true{{ end }}
{{- end }}

{{- define "rebalancer.scheme" -}}
{{ ternary "HTTPS" "HTTP" (ne .Values.webhook.tlsSecretName "") }}
{{- end }}

{{/* Of (list ROOT ALERT): the annotation that links the alert's section of the runbook; empty without a runbookUrl. */}}
{{- define "rebalancer.runbook" -}}
{{- with (first .).Values.monitoring.prometheusRule.runbookUrl -}}
runbook_url: {{ printf "%s/docs/operations/runbook.md#%s" . (last $ | lower) | quote }}
{{- end }}
{{- end }}

{{/* What the daemon and the migration both need to know. */}}
{{- define "rebalancer.databaseEnv" -}}
- name: REBALANCER_DATABASE
{{- if eq .Values.database.kind "postgresql" }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.postgresql.secretName | quote }}
      key: {{ .Values.database.postgresql.secretKey | quote }}
{{- else }}
  value: sqlite:////data/rebalancer.db
{{- end }}
{{- end }}
