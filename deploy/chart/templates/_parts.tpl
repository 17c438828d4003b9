{{- define "netloom.bracketed" -}}
{{- if contains ":" . }}[{{ . }}]{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- define "netloom.metadata" -}}
name: {{ .name }}
namespace: netloom-system
labels:
  app.kubernetes.io/name: netloom
  app.kubernetes.io/part-of: netloom
  app.kubernetes.io/component: {{ .name }}
{{- end }}

{{/* The reason for hostNetwork: these pods make the network of all others. */}}
{{- define "netloom.pod" -}}
hostNetwork: true
dnsPolicy: Default
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "netloom.container" -}}
image: {{ .Values.image | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
{{- end }}

{{- define "netloom.apiserver" -}}
- {name: KUBERNETES_SERVICE_HOST, value: {{ required "apiServer: where nodes reach kube-apiserver" .Values.apiServer | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .Values.apiServerPort | quote }}}
{{- end }}

{{- define "netloom.unprivileged" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}
