{{/*
The size catalogue as JSON with sorted keys: the sizes of the values, with what the switches for swap
and scratch disks imply written into each.
*/}}
{{- define "materialize-operator.sizes" -}}
{{- $storageClass := .Values.storage.storageClass.name }}
{{- $swap := default false .Values.operator.clusters.swap_enabled }}
{{- $sizes := dict }}
{{- range $name, $values := .Values.operator.clusters.sizes }}
{{- $size := deepCopy $values }}
{{- if or (not $storageClass) $swap }}
{{- $_ := set $size "disk_limit" "0" }}
{{- end }}
{{- if kindIs "invalid" $size.swap_enabled }}
{{- $_ := set $size "swap_enabled" $swap }}
{{- end }}
{{- $selectors := default dict $size.selectors }}
{{- if $size.swap_enabled }}
{{- $selectors = merge $selectors (default dict $.Values.clusterd.swapNodeSelector) }}
{{- else if $storageClass }}
{{- $selectors = merge $selectors (default dict $.Values.clusterd.scratchfsNodeSelector) }}
{{- end }}
{{- $_ := set $size "selectors" $selectors }}
{{- $_ := set $size "is_cc" true }}
{{- $_ := set $sizes $name $size }}
{{- end }}
{{- toJson $sizes }}
{{- end }}
