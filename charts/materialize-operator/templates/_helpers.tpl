{{- define "materialize-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "materialize-operator.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "materialize-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "materialize-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "materialize-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "materialize-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "materialize-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "materialize-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Not empty if more than one replica is asked for: only then there is something to spread and to budget. */}}
{{- define "materialize-operator.replicated" -}}
{{- if gt (int .Values.operator.replicas) 1 }}true{{ end }}
{{- end }}

{{/* Not empty if the chart has cert-manager make the webhook's certificate. */}}
{{- define "materialize-operator.certManager" -}}
{{- if and .Values.operator.args.installV1CRD (eq (toString .Values.operator.certificate.source) "cert-manager") }}true{{ end }}
{{- end }}

{{/* Not empty if the GKE node upgrade watcher is on. */}}
{{- define "materialize-operator.gcpTrigger" -}}
{{- with .Values.operator.cloudProvider }}
{{- if and (eq .type "gcp") .providers.gcp.nodeUpgradeRolloutTrigger.enabled }}true{{ end }}
{{- end }}
{{- end }}

{{/* Name of the Secret that is mounted at /etc/tls. */}}
{{- define "materialize-operator.certificateSecretName" -}}
{{- $certificate := .Values.operator.certificate }}
{{- $source := toString $certificate.source }}
{{- if eq $source "cert-manager" }}
{{- printf "%s-cert" (include "materialize-operator.fullname" .) }}
{{- else if eq $source "secret" }}
{{- required "operator.certificate.secretName is required with operator.args.installV1CRD and operator.certificate.source=secret: name a Secret in the release namespace that has the keys ca.crt, tls.crt and tls.key" $certificate.secretName }}
{{- else }}
{{- fail (printf "operator.certificate.source must be cert-manager or secret, not %q" $source) }}
{{- end }}
{{- end }}
