{{- define "name" -}}
commingle-{{ .Values.role }}
{{- end }}

{{- define "image" -}}
image: {{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Chart.AppVersion }}{{ end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{- define "pod" -}}
securityContext: # the `restricted` Pod Security Standard
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch # else keys become readable by their group at every start, and are refused
  seccompProfile: { type: RuntimeDefault }
automountServiceAccountToken: false
enableServiceLinks: false # else COMMINGLE_COORDINATOR_PORT is an address and no port
terminationGracePeriodSeconds: 60
{{- end }}

{{- define "environment" -}}
{{- $prefix := printf "COMMINGLE_%s" (eq .Values.role "agent" | ternary "party" .Values.role | upper) -}}
- { name: {{ $prefix }}_HOST, value: 0.0.0.0 }
{{- range $name, $value := .Values.settings }}
- { name: {{ $prefix }}_{{ upper $name }}, value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }} }
{{- end }}
{{- end }}

{{- define "probes" -}}
{{- $scheme := eq .port "https" | ternary "HTTPS" "HTTP" -}}
startupProbe: { httpGet: { path: /healthz, port: {{ .port }}, scheme: {{ $scheme }} }, periodSeconds: 5, failureThreshold: 60 }
livenessProbe: { httpGet: { path: /healthz, port: {{ .port }}, scheme: {{ $scheme }} }, periodSeconds: 20, timeoutSeconds: 10 }
readinessProbe: { httpGet: { path: {{ .ready }}, port: {{ .port }}, scheme: {{ $scheme }} }, periodSeconds: 10, timeoutSeconds: 5 }
{{- end }}

{{- define "mounts" -}}
- { name: tmp, mountPath: /tmp }
{{- range $i, $_ := .Values.secrets }}
- { name: secret-{{ $i }}, mountPath: /run/secrets/{{ . }}, readOnly: true }
{{- end }}
{{- end }}

{{- define "volumes" -}}
- { name: tmp, emptyDir: { sizeLimit: {{ .Values.temporary }} } }
{{- range $i, $_ := .Values.secrets }}
- { name: secret-{{ $i }}, secret: { secretName: {{ . }} } }
{{- end }}
{{- end }}

{{- define "resources" -}}
resources:
  requests: {{ toJson .Values.requests }}
  limits: {{ toJson .Values.limits }}
{{- end }}
