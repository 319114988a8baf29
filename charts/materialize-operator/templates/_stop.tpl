{{/* The bounds of election and stop in seconds, by flag; the operator's own defaults where a value is null. */}}
{{- define "materialize-operator.bounds" -}}
{{- $bounds := dict
  "leader-election-lease-duration" 15 "leader-election-renew-deadline" 10 "leader-election-retry-period" 2
  "leader-election-call-timeout" 3 "leader-election-release-timeout" 2 "leader-election-join-timeout" 1
  "webhook-linger" 5 "webhook-drain" 5 -}}
{{- range $flag, $seconds := fromYaml (include "materialize-operator.givenBounds" .) }}
{{- $_ := set $bounds $flag $seconds }}
{{- end }}
{{- toYaml $bounds -}}
{{- end }}

{{/* Those of them that a value gives. */}}
{{- define "materialize-operator.givenBounds" -}}
{{- $election := .Values.operator.leaderElection -}}
{{- $webhook := .Values.operator.webhook -}}
{{- range $flag, $value := dict
  "leader-election-lease-duration" $election.leaseDurationSeconds
  "leader-election-renew-deadline" $election.renewDeadlineSeconds
  "leader-election-retry-period" $election.retryPeriodSeconds
  "leader-election-call-timeout" $election.callTimeoutSeconds
  "leader-election-release-timeout" $election.releaseTimeoutSeconds
  "leader-election-join-timeout" $election.joinTimeoutSeconds
  "webhook-linger" $webhook.lingerSeconds
  "webhook-drain" $webhook.drainSeconds }}
{{- if not (kindIs "invalid" $value) }}
{{ $flag }}: {{ int $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* The operator refuses these too, but an upgrade that fails at once is better than a pod that does not start. */}}
{{- define "materialize-operator.checkBounds" -}}
{{- $bounds := fromYaml (include "materialize-operator.bounds" .) -}}
{{- $lease := int (get $bounds "leader-election-lease-duration") -}}
{{- $deadline := int (get $bounds "leader-election-renew-deadline") -}}
{{- $joined := int (mul 2 (get $bounds "leader-election-join-timeout")) -}}
{{- if ge (mul 11 (add $deadline $joined)) (mul 10 $lease) }}
{{- fail (printf "operator.leaderElection: renewDeadlineSeconds (%d) and twice joinTimeoutSeconds (%d), with a tenth more for clocks that differ, must stay below leaseDurationSeconds (%d)" $deadline $joined $lease) }}
{{- end }}
{{- $release := int (get $bounds "leader-election-release-timeout") -}}
{{- if le (int (mul 2 $release)) $joined }}
{{- fail (printf "operator.leaderElection: releaseTimeoutSeconds (%d) must exceed joinTimeoutSeconds: it counts from the stop, and the tasks are joined first" $release) }}
{{- end }}
{{- if ge (mul 3 (get $bounds "leader-election-retry-period")) (mul 2 $deadline) }}
{{- fail (printf "operator.leaderElection: 1.5 times retryPeriodSeconds must stay below renewDeadlineSeconds (%d)" $deadline) }}
{{- end }}
{{- if gt (mul 3 (get $bounds "leader-election-call-timeout")) (int64 $deadline) }}
{{- fail (printf "operator.leaderElection: callTimeoutSeconds must be at most a third of renewDeadlineSeconds (%d)" $deadline) }}
{{- end }}
{{- end }}

{{/*
Seconds that Kubernetes lets the operator stop: twice the longer of giving the Lease back and draining the
webhook, with 5 s more.
*/}}
{{- define "materialize-operator.gracePeriodSeconds" -}}
{{- $bounds := fromYaml (include "materialize-operator.bounds" .) -}}
{{- $released := max (mul 2 (get $bounds "leader-election-join-timeout")) (get $bounds "leader-election-release-timeout") -}}
{{- $drained := add (get $bounds "webhook-linger") (get $bounds "webhook-drain") -}}
{{- mul 2 (add 5 (max $released $drained)) -}}
{{- end }}

{{/* The flags behind these values; none where all are null. */}}
{{- define "materialize-operator.stopFlags" -}}
{{- include "materialize-operator.checkBounds" . }}
{{- $given := fromYaml (include "materialize-operator.givenBounds" .) }}
{{- range $flag, $seconds := $given }}
{{- include "materialize-operator.flag" (list $flag (printf "%ds" (int $seconds))) }}
{{- end }}
{{- if $given }}
{{- include "materialize-operator.flag" (list "termination-grace-period" (printf "%ss" (include "materialize-operator.gracePeriodSeconds" .))) }}
{{- end }}
{{- if .Values.operator.leaderElection.serverFence -}}
- "--server-fence"
{{ end }}
{{- end }}
