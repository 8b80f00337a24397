{{/* The text of the policy file: the value as it is written, a map as YAML, or the chart's example. */}}
{{- define "rebalancer.policy" -}}
{{- if not .Values.policy -}}
{{ .Files.Get "files/policy.yaml" }}
{{- else if kindIs "string" .Values.policy -}}
{{ .Values.policy }}
{{- else -}}
{{ toYaml .Values.policy }}
{{- end }}
{{- end }}

{{/* The policy as JSON. */}}
{{- define "rebalancer.policyData" -}}
{{- $policy := fromYaml (include "rebalancer.policy" .) }}
{{- if hasKey $policy "Error" }}{{ fail (printf "policy: not YAML: %s" $policy.Error) }}{{ end }}
{{- toJson $policy }}
{{- end }}

{{/* Fails where the policy does not fit its schema, with one line for each mistake. */}}
{{- define "rebalancer.checkPolicy" -}}
{{- $schema := fromJson (.Files.Get "files/policy.schema.json") }}
{{- $policy := fromJson (include "rebalancer.policyData" .) }}
{{- with trim (include "rebalancer.violations" (list "policy" $policy $schema $schema)) }}
{{- fail (printf "the policy has mistakes:\n%s" .) }}
{{- end }}
{{- end }}

{{/*
Of (list PATH VALUE SCHEMA ROOT): a line for each place of VALUE that does not fit the JSON Schema. It knows the keywords
that `rebalancer policy schema` uses. Quantities and relations between fields are checked by the program alone.
*/}}
{{- define "rebalancer.violations" }}
{{- $path := index . 0 }}{{ $value := index . 1 }}{{ $schema := index . 2 }}{{ $root := index . 3 }}
{{- $kinds := dict "object" "map" "array" "slice" "string" "string" "boolean" "bool" "integer" "float64" "number" "float64" "null" "invalid" }}
{{- with index $schema "$ref" }}
{{- $schema = index $root "$defs" (base .) }}
{{- end }}
{{- with $schema.oneOf }}{{/* strategies: by name; the last alternative is for those of plugins */}}
{{- $schema = index $root "$defs" (base (index (last .) "$ref")) }}
{{- $names := list }}
{{- range initial . }}
{{- $each := index $root "$defs" (base (index . "$ref")) }}
{{- $names = append $names $each.properties.name.const }}
{{- if kindIs "map" $value }}{{ if eq (toString $value.name) $each.properties.name.const }}{{ $schema = $each }}{{ end }}{{ end }}
{{- end }}
{{- if kindIs "map" $value }}
{{- if not (or (has $value.name $names) (contains "/" (toString $value.name))) }}
{{- printf "\n%s.name: expected %s, got %s" $path (join ", " $names) (toJson $value.name) }}
{{- $schema = dict }}
{{- end }}
{{- end }}
{{- end }}
{{- with $schema.anyOf }}
{{- $fits := false }}{{ $first := "" }}
{{- range . }}
{{- $found := trim (include "rebalancer.violations" (list $path $value . $root)) }}
{{- if not $found }}{{ $fits = true }}{{ end }}
{{- if or (not $first) (kindIs (get $kinds (.type | default "object")) $value) }}{{ $first = $found }}{{ end }}
{{- end }}
{{- if and $first (not $fits) }}{{ printf "\n%s" $first }}{{ end }}
{{- end }}
{{- $shown := ternary "nothing" (toJson $value) (kindIs "invalid" $value) }}
{{- $switch := and (kindIs "bool" $value) (has "Off" ($schema.enum | default list)) }}{{/* YAML reads Off as false */}}
{{- if and $schema.type (not $switch) (not (kindIs (get $kinds $schema.type) $value)) }}
{{- printf "\n%s: expected %s, got %s" $path (get (dict "object" "fields" "array" "a list" "boolean" "true or false") $schema.type | default $schema.type) $shown }}
{{- else if kindIs "map" $value }}
{{- $known := $schema.properties | default dict }}
{{- range $schema.required }}
{{- if not (hasKey $value .) }}{{ printf "\n%s.%s: missing" $path . }}{{ end }}
{{- end }}
{{- range $name, $each := $value }}
{{- if hasKey $known $name }}
{{- include "rebalancer.violations" (list (printf "%s.%s" $path $name) $each (get $known $name) $root) }}
{{- else if kindIs "map" $schema.additionalProperties }}
{{- include "rebalancer.violations" (list (printf "%s.%s" $path $name) $each $schema.additionalProperties $root) }}
{{- else if kindIs "bool" $schema.additionalProperties }}
{{- if not $schema.additionalProperties }}{{ printf "\n%s.%s: unknown field; known here: %s" $path $name (keys $known | sortAlpha | join ", ") }}{{ end }}
{{- end }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- if lt (len $value) (int ($schema.minItems | default 0)) }}{{ printf "\n%s: expected at least %v" $path $schema.minItems }}{{ end }}
{{- range $index, $each := $value }}
{{- with $schema.items }}{{ include "rebalancer.violations" (list (printf "%s[%d]" $path $index) $each . $root) }}{{ end }}
{{- end }}
{{- else if kindIs "string" $value }}
{{- if and $schema.pattern (not (regexMatch $schema.pattern $value)) }}
{{- printf "\n%s: expected %s, got %s" $path ($schema.expected | default (printf "text that matches %s" $schema.pattern)) $shown }}
{{- else if lt (len $value) (int ($schema.minLength | default 0)) }}{{ printf "\n%s: expected text, got nothing" $path }}
{{- end }}
{{- else if kindIs "float64" $value }}
{{- if and (eq (toString $schema.type) "integer") (ne (floor $value) $value) }}{{ printf "\n%s: expected a whole number, got %s" $path $shown }}{{ end }}
{{- if and (hasKey $schema "minimum") (lt $value (float64 (get $schema "minimum"))) }}{{ printf "\n%s: expected %v or more, got %s" $path $schema.minimum $shown }}{{ end }}
{{- if and (hasKey $schema "exclusiveMinimum") (le $value (float64 (get $schema "exclusiveMinimum"))) }}{{ printf "\n%s: expected more than %v, got %s" $path $schema.exclusiveMinimum $shown }}{{ end }}
{{- if and (hasKey $schema "maximum") (gt $value (float64 (get $schema "maximum"))) }}{{ printf "\n%s: expected %v or less, got %s" $path $schema.maximum $shown }}{{ end }}
{{- end }}
{{- $allowed := ternary (list $schema.const) ($schema.enum | default list) (hasKey $schema "const") }}
{{- if and $allowed (not $switch) (not (has $value $allowed)) }}{{ printf "\n%s: expected %s, got %s" $path (join ", " $allowed) $shown }}{{ end }}
{{- end }}
