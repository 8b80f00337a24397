{{/* The name of all objects. The label app.kubernetes.io/name is fixed: the policy recognizes our pods by it. */}}
{{- define "rebalancer.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" (.Release.Name | trunc (max 1 (sub 49 (len $name)) | int) | trimSuffix "-") $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "rebalancer.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "rebalancer.fullname" .) }}
{{- else -}}
{{ required "serviceAccount.name: set it: with serviceAccount.create=false the pods use a service account that is there" .Values.serviceAccount.name }}
{{- end }}
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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "rebalancer.image" -}}
{{- $repository := required "image.repository: set it to your image without its tag: --set image.repository=REGISTRY/rebalancer" .Values.image.repository -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* Empty unless the daemon runs, which has a web server. */}}
{{- define "rebalancer.isDaemon" -}}
{{ ternary "true" "" (eq .Values.kind "Deployment") }}
{{- end }}

{{/* Empty unless usage comes from metrics-server. */}}
{{- define "rebalancer.readsMetricsServer" -}}
{{- $policy := fromJson (include "rebalancer.policyData" .) }}
{{- if eq "MetricsServer" (toString (dig "usage" "source" "Prometheus" $policy)) }}true{{ end }}
{{- end }}

{{/* Empty unless the policy moves pods by replacement first, and not in dry run. */}}
{{- define "rebalancer.replacementFirst" -}}
{{- $policy := fromJson (include "rebalancer.policyData" .) }}
{{- if and (not .Values.dryRun) (dig "guards" "replacementFirst" list $policy) }}true{{ end }}
{{- end }}

{{/* Empty unless a receiver of notifications is Alertmanager. */}}
{{- define "rebalancer.notifiesAlertmanager" -}}
{{- $policy := fromJson (include "rebalancer.policyData" .) }}
{{- range dig "notifications" "receivers" list $policy }}{{ if .alertmanager }}true{{ end }}{{ end }}
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
