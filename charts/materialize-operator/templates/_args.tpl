{{/*
One argument, from a list of the flag's name and its value. Anything but text is written as compact JSON
with sorted keys, which also keeps large integers out of exponent form.
*/}}
{{- define "materialize-operator.flag" -}}
{{- $value := last . -}}
- {{ printf "--%s=%s" (first .) (kindIs "string" $value | ternary $value (toRawJson $value)) | quote }}
{{ end }}

{{/* One argument unless the value is empty. */}}
{{- define "materialize-operator.optionalFlag" -}}
{{- if last . }}{{ include "materialize-operator.flag" . }}{{ end }}
{{- end }}

{{/* One argument for each pair of a map, `--flag=key=value`. */}}
{{- define "materialize-operator.mapFlags" -}}
{{- $flag := first . }}
{{- range $key, $value := last . }}
{{- include "materialize-operator.flag" (list (printf "%s=%s" $flag $key) $value) }}
{{- end }}
{{- end }}

{{/* One argument for each item of a list. */}}
{{- define "materialize-operator.listFlags" -}}
{{- $flag := first . }}
{{- range last . }}
{{- include "materialize-operator.flag" (list $flag .) }}
{{- end }}
{{- end }}

{{/* Where the pods of a component run, from a list of the component and its values. */}}
{{- define "materialize-operator.schedulingFlags" -}}
{{- $component := first . }}
{{- $values := last . }}
{{- include "materialize-operator.mapFlags" (list (printf "%s-node-selector" $component) $values.nodeSelector) }}
{{- include "materialize-operator.optionalFlag" (list (printf "%s-affinity" $component) $values.affinity) }}
{{- include "materialize-operator.listFlags" (list (printf "%s-toleration" $component) $values.tolerations) }}
{{- if has $component (list "environmentd" "clusterd") }}
{{- include "materialize-operator.optionalFlag" (list (printf "%s-priority-class-name" $component) $values.priorityClassName) }}
{{- end }}
{{- if ne $component "clusterd" }}
{{- include "materialize-operator.optionalFlag" (list (printf "%s-default-resources" $component) $values.defaultResources) }}
{{- end }}
{{- end }}

{{- define "materialize-operator.awsFlags" -}}
{{- if eq .Values.operator.cloudProvider.type "aws" }}
{{- with .Values.operator.cloudProvider.providers.aws }}
{{- include "materialize-operator.optionalFlag" (list "aws-account-id" .accountID) }}
{{- include "materialize-operator.optionalFlag" (list "environmentd-iam-role-arn" .iam.roles.environment) }}
{{- include "materialize-operator.optionalFlag" (list "environmentd-connection-role-arn" .iam.roles.connection) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "materialize-operator.gcpFlags" -}}
{{- if include "materialize-operator.gcpTrigger" . }}
{{- with .Values.operator.cloudProvider.providers.gcp.nodeUpgradeRolloutTrigger -}}
- "--enable-gcp-node-upgrade-rollout-trigger"
{{ include "materialize-operator.flag" (list "gcp-node-upgrade-notification-subscription" (required "operator.cloudProvider.providers.gcp.nodeUpgradeRolloutTrigger.notificationSubscription is required with nodeUpgradeRolloutTrigger.enabled: projects/{project}/subscriptions/{subscription}" .notificationSubscription)) }}
{{- include "materialize-operator.flag" (list "gcp-cluster-name" (required "operator.cloudProvider.providers.gcp.nodeUpgradeRolloutTrigger.clusterName is required with nodeUpgradeRolloutTrigger.enabled" .clusterName)) }}
{{- include "materialize-operator.flag" (list "gcp-cluster-location" (required "operator.cloudProvider.providers.gcp.nodeUpgradeRolloutTrigger.clusterLocation is required with nodeUpgradeRolloutTrigger.enabled" .clusterLocation)) }}
{{- include "materialize-operator.listFlags" (list "gcp-node-upgrade-watched-node-pool" .watchedNodePools) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "materialize-operator.clusterFlags" -}}
{{- with .Values.operator.clusters }}
{{- if .sizes }}
{{- include "materialize-operator.flag" (list "environmentd-cluster-replica-sizes" (include "materialize-operator.sizes" $)) }}
{{- end }}
{{- with .defaultSizes }}
{{- include "materialize-operator.optionalFlag" (list "bootstrap-default-cluster-replica-size" .default) }}
{{- include "materialize-operator.optionalFlag" (list "bootstrap-builtin-system-cluster-replica-size" .system) }}
{{- include "materialize-operator.optionalFlag" (list "bootstrap-builtin-probe-cluster-replica-size" .probe) }}
{{- include "materialize-operator.optionalFlag" (list "bootstrap-builtin-support-cluster-replica-size" .support) }}
{{- include "materialize-operator.optionalFlag" (list "bootstrap-builtin-catalog-server-cluster-replica-size" .catalogServer) }}
{{- include "materialize-operator.optionalFlag" (list "bootstrap-builtin-analytics-cluster-replica-size" .analytics) }}
{{- end }}
{{- $factors := default dict .defaultReplicationFactor }}
{{- range list "system" "probe" "support" "analytics" }}
{{- $factor := index $factors . }}
{{- if not (kindIs "invalid" $factor) }}
{{- include "materialize-operator.flag" (list (printf "bootstrap-builtin-%s-cluster-replication-factor" .) $factor) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "materialize-operator.networkPolicyFlags" -}}
{{- with .Values.networkPolicies }}
{{- if .enabled }}
{{- if .internal.enabled -}}
- "--network-policies-internal-enabled"
{{ end }}
{{- if .ingress.enabled -}}
- "--network-policies-ingress-enabled"
{{ include "materialize-operator.listFlags" (list "network-policies-ingress-cidrs" .ingress.cidrs) }}
{{- end }}
{{- if .egress.enabled -}}
- "--network-policies-egress-enabled"
{{ include "materialize-operator.listFlags" (list "network-policies-egress-cidrs" .egress.cidrs) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "materialize-operator.observabilityFlags" -}}
{{- with .Values.observability }}
{{- if .enabled }}
{{- if .podMetrics.enabled -}}
- "--collect-pod-metrics"
{{ end }}
{{- if .prometheus.scrapeAnnotations.enabled -}}
- "--enable-prometheus-scrape-annotations"
{{ end }}
{{- end }}
{{- end }}
{{- with .Values.telemetry }}
{{- if .enabled }}
{{- include "materialize-operator.optionalFlag" (list "segment-api-key" .segmentApiKey) }}
{{- if .segmentClientSide -}}
- "--segment-client-side"
{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "materialize-operator.loggingFlags" -}}
{{- with .Values.operator.args }}
{{- if not (kindIs "invalid" .statementLoggingMaxSampleRate) }}
{{- include "materialize-operator.flag" (list "statement-logging-max-sample-rate" .statementLoggingMaxSampleRate) }}
{{- end }}
{{- if not (kindIs "invalid" .statementLoggingTargetDataRate) }}
{{- include "materialize-operator.flag" (list "statement-logging-target-data-rate" .statementLoggingTargetDataRate) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The operator's arguments. Their order is part of the chart's interface: tests of users address them by index. */}}
{{- define "materialize-operator.args" -}}
{{- include "materialize-operator.flag" (list "helm-chart-version" .Chart.Version) }}
{{- include "materialize-operator.flag" (list "startup-log-filter" .Values.operator.args.startupLogFilter) }}
{{- include "materialize-operator.flag" (list "cloud-provider" .Values.operator.cloudProvider.type) }}
{{- include "materialize-operator.flag" (list "region" .Values.operator.cloudProvider.region) }}
{{- include "materialize-operator.flag" (list "secrets-controller" .Values.operator.secretsController) }}
{{- include "materialize-operator.loggingFlags" . }}
{{- include "materialize-operator.mapFlags" (list "orchestratord-pod-selector-labels" (include "materialize-operator.selectorLabels" . | fromYaml)) }}
{{- with .Values.operator.args }}
{{- if .enableInternalStatementLogging -}}
- "--enable-internal-statement-logging"
{{ end }}
{{- if not .enableLicenseKeyChecks -}}
- "--disable-license-key-checks"
{{ end }}
{{- if .installV1CRD -}}
- "--install-v1-crd"
{{ include "materialize-operator.optionalFlag" (list "webhook-cert-reload-interval" .webhookCertReloadInterval) }}
{{- end }}
{{- end }}
{{- include "materialize-operator.awsFlags" . }}
{{- include "materialize-operator.gcpFlags" . }}
{{- if .Values.balancerd.enabled -}}
- "--create-balancers"
{{ end }}
{{- if .Values.console.enabled -}}
- "--create-console"
{{ end }}
{{- include "materialize-operator.flag" (list "console-image-tag-default" .Values.operator.image.tag) }}
{{- include "materialize-operator.mapFlags" (list "console-image-tag-map" .Values.console.imageTagMapOverride) }}
{{- include "materialize-operator.clusterFlags" . }}
{{- include "materialize-operator.flag" (list "image-pull-policy" (kebabcase .Values.operator.image.pullPolicy)) }}
{{- include "materialize-operator.schedulingFlags" (list "environmentd" .Values.environmentd) }}
{{- include "materialize-operator.schedulingFlags" (list "clusterd" .Values.clusterd) }}
{{- include "materialize-operator.schedulingFlags" (list "balancerd" .Values.balancerd) }}
{{- include "materialize-operator.schedulingFlags" (list "console" .Values.console) }}
{{- include "materialize-operator.optionalFlag" (list "ephemeral-volume-class" .Values.storage.storageClass.name) }}
{{- include "materialize-operator.networkPolicyFlags" . }}
{{- include "materialize-operator.optionalFlag" (list "default-certificate-specs" .Values.tls.defaultCertificateSpecs) }}
{{- include "materialize-operator.observabilityFlags" . -}}
- "--enable-security-context"
{{ include "materialize-operator.optionalFlag" (list "scheduler-name" .Values.schedulerName) }}
{{- include "materialize-operator.optionalFlag" (list "additional-crd-columns" .Values.operator.additionalMaterializeCRDColumns) }}
{{- if .Values.operator.args.installV1CRD -}}
- "--webhook-service-name"
- {{ include "materialize-operator.fullname" . | quote }}
- "--webhook-service-namespace"
- {{ .Release.Namespace | quote }}
{{ end }}
{{- include "materialize-operator.stopFlags" . }}
{{- end }}
