{{/* The pod of the Deployment or the CronJob, metadata and spec. */}}
{{- define "rebalancer.pod" -}}
{{- $many := eq .Values.database.kind "postgresql" }}
{{- $daemon := include "rebalancer.isDaemon" . }}
{{- /* values of an earlier release, by --reuse-values, have no approval */}}
{{- $approval := .Values.approval | default dict }}
{{- $key := $approval.key | default dict }}
{{- $webhook := .Values.webhook -}}
metadata:
  labels:
    {{- include "rebalancer.selectorLabels" . | nindent 4 }}
    {{- with merge (dict) .Values.podLabels .Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # a changed policy is reloaded without a restart, except the cluster's name and the scheduler's file
    checksum/config: {{ include (print .Template.BasePath "/configmap.yaml") . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- if not $daemon }}
  restartPolicy: Never
  {{- end }}
  serviceAccountName: {{ include "rebalancer.serviceAccountName" . }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext: {{- toYaml . | nindent 4 }}
  {{- end }}
  initContainers:
    # creates or upgrades the tables; one upgrade runs at a time
    - name: migrate
      image: {{ include "rebalancer.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [db, upgrade]
      env: {{- include "rebalancer.env" . | nindent 8 }}
      {{- with .Values.securityContext }}
      securityContext: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.resources }}
      resources: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: tmp, mountPath: /tmp}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  containers:
    - name: rebalancer
      image: {{ include "rebalancer.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - run
        {{- if not $daemon }}
        - --once
        {{- end }}
        {{- if .Values.dryRun }}
        - --dry-run
        {{- end }}
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      env:
        {{- include "rebalancer.env" . | nindent 8 }}
        - {name: REBALANCER_POLICY, value: /etc/rebalancer/policy.yaml}
        - {name: REBALANCER_HISTORY_DIR, value: /data/history}
        {{- if ne .Values.logLevel "info" }}
        - {name: REBALANCER_LOG_LEVEL, value: {{ .Values.logLevel }}}
        {{- end }}
        {{- if $daemon }}
        - {name: REBALANCER_LISTEN, value: "0.0.0.0:8080"}
        - {name: REBALANCER_HEALTH_LISTEN, value: "0.0.0.0:8081"}
        {{- if ne (.Values.dashboard | default "on") "on" }}
        - {name: REBALANCER_DASHBOARD, value: {{ .Values.dashboard | quote }}}
        {{- end }}
        {{- if and .Values.ingress.enabled (eq .Values.dashboard "open") }}
        {{- $names := list }}
        {{- range .Values.ingress.hosts }}{{ $names = append $names .host }}{{ end }}
        - {name: REBALANCER_DASHBOARD_HOSTS, value: {{ join "," $names | quote }}}
        {{- end }}
        {{- if $key.secretName }}
        - {name: REBALANCER_APPROVAL_KEY_FILE, value: /run/rebalancer/approval/key}
        {{- end }}
        {{- with $approval.url }}
        - {name: REBALANCER_DASHBOARD_URL, value: {{ . | quote }}}
        {{- end }}
        {{- if $webhook.bearerToken.secretName }}
        - {name: REBALANCER_BEARER_TOKEN_FILE, value: /run/rebalancer/bearer-token/token}
        {{- end }}
        {{- if $webhook.basicAuth.secretName }}
        - {name: REBALANCER_BASIC_AUTH_FILE, value: /run/rebalancer/basic-auth/userpassword}
        {{- end }}
        {{- if $webhook.tlsSecretName }}
        - {name: REBALANCER_TLS_CERT_FILE, value: /run/rebalancer/tls/tls.crt}
        - {name: REBALANCER_TLS_KEY_FILE, value: /run/rebalancer/tls/tls.key}
        {{- end }}
        {{- end }}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        - name: POD_UID
          valueFrom: {fieldRef: {fieldPath: metadata.uid}}
      {{- if $daemon }}
      ports:
        - {name: http, containerPort: 8080, protocol: TCP}
        - {name: health, containerPort: 8081, protocol: TCP}
      startupProbe:
        httpGet: {path: /livez, port: health, scheme: HTTP}
        {{- toYaml .Values.startupProbe | nindent 8 }}
      livenessProbe:
        httpGet: {path: /livez, port: health, scheme: HTTP}
        {{- toYaml .Values.livenessProbe | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: health, scheme: HTTP}
        {{- toYaml .Values.readinessProbe | nindent 8 }}
      {{- end }}
      {{- with .Values.securityContext }}
      securityContext: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.resources }}
      resources: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: config, mountPath: /etc/rebalancer, readOnly: true}
        - {name: data, mountPath: /data}
        - {name: tmp, mountPath: /tmp}
        {{- if and $daemon $key.secretName }}
        - {name: approval, mountPath: /run/rebalancer/approval, readOnly: true}
        {{- end }}
        {{- if and $daemon $webhook.bearerToken.secretName }}
        - {name: bearer-token, mountPath: /run/rebalancer/bearer-token, readOnly: true}
        {{- end }}
        {{- if and $daemon $webhook.basicAuth.secretName }}
        - {name: basic-auth, mountPath: /run/rebalancer/basic-auth, readOnly: true}
        {{- end }}
        {{- if and $daemon $webhook.tlsSecretName }}
        - {name: tls, mountPath: /run/rebalancer/tls, readOnly: true}
        {{- end }}
        {{- if .Values.prometheusSecretName }}
        - {name: prometheus, mountPath: /run/rebalancer/prometheus, readOnly: true}
        {{- end }}
        {{- if .Values.notificationsSecretName }}
        - {name: notifications, mountPath: /run/rebalancer/notifications, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "rebalancer.fullname" . }}-policy}
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    - name: data
      {{- if $many }}
      # each replica keeps its own CPU history: a cache, refilled from Prometheus
      emptyDir: {sizeLimit: 4Gi}
      {{- else if eq (toString .Values.database.sqlite.persistent) "false" }}
      {{- if not .Values.dryRun }}
      {{- fail "database.sqlite.persistent: false needs dryRun: without the records of earlier evictions each limit would start from zero" }}
      {{- end }}
      emptyDir: {sizeLimit: {{ .Values.database.sqlite.size }}}
      {{- else }}
      persistentVolumeClaim: {claimName: {{ .Values.database.sqlite.existingClaim | default (include "rebalancer.fullname" .) | quote }}}
      {{- end }}
    {{- if and $daemon $key.secretName }}
    - name: approval
      secret: {secretName: {{ $key.secretName | quote }}, defaultMode: 288, items: [{key: {{ $key.secretKey | default "key" | quote }}, path: key}]}
    {{- end }}
    {{- if and $daemon $webhook.bearerToken.secretName }}
    - name: bearer-token
      secret: {secretName: {{ $webhook.bearerToken.secretName | quote }}, defaultMode: 288, items: [{key: {{ $webhook.bearerToken.secretKey | quote }}, path: token}]}
    {{- end }}
    {{- if and $daemon $webhook.basicAuth.secretName }}
    - name: basic-auth
      secret: {secretName: {{ $webhook.basicAuth.secretName | quote }}, defaultMode: 288, items: [{key: {{ $webhook.basicAuth.secretKey | quote }}, path: userpassword}]}
    {{- end }}
    {{- if and $daemon $webhook.tlsSecretName }}
    - name: tls
      secret: {secretName: {{ $webhook.tlsSecretName | quote }}, defaultMode: 288}
    {{- end }}
    {{- with .Values.prometheusSecretName }}
    - name: prometheus
      secret: {secretName: {{ . | quote }}, defaultMode: 288}
    {{- end }}
    {{- with .Values.notificationsSecretName }}
    - name: notifications
      secret: {secretName: {{ . | quote }}, defaultMode: 288}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints: {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
  {{- else if and $daemon (gt (int .Values.replicas) 1) }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      matchLabelKeys: [pod-template-hash]
      labelSelector:
        matchLabels: {{- include "rebalancer.selectorLabels" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Of (list ROOT COMPONENT ARGUMENTS): our pod, which runs another command and ends. */}}
{{- define "rebalancer.podOnce" -}}
{{- $root := first . }}
{{- $spec := (fromYaml (include "rebalancer.pod" $root)).spec }}
{{- $container := omit (first $spec.containers) "ports" "startupProbe" "livenessProbe" "readinessProbe" }}
{{- $volumes := list (dict "name" "data" "emptyDir" dict) }}
{{- range $spec.volumes }}
{{- if ne .name "data" }}{{ $volumes = append $volumes . }}{{ end }}
{{- end }}
metadata:
  labels:
    # not those that Service, NetworkPolicy and PodDisruptionBudget select
    app.kubernetes.io/instance: {{ $root.Release.Name }}
    app.kubernetes.io/component: {{ index . 1 }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- toYaml (omit $spec "initContainers" "containers" "volumes" "restartPolicy" "topologySpreadConstraints") | nindent 2 }}
  restartPolicy: Never
  containers:
    - {{- toYaml (set $container "args" (last .)) | nindent 6 }}
  # the daemon's volume can be on one node only
  volumes: {{- toYaml $volumes | nindent 4 }}
{{- end }}

{{/* Environment of all containers. */}}
{{- define "rebalancer.env" -}}
- name: REBALANCER_DATABASE
{{- if eq .Values.database.kind "postgresql" }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.postgresql.secretName | quote }}
      key: {{ .Values.database.postgresql.secretKey | quote }}
{{- else }}
  value: sqlite:////data/rebalancer.db
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
