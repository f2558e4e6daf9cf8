{{- define "agiledart.labels" -}}
app.kubernetes.io/name: agiledart
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "agiledart.selector" -}}
app.kubernetes.io/name: agiledart
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "agiledart.secret" -}}
{{- if .Values.token.existingSecret -}}
{{ .Values.token.existingSecret }}
{{- else -}}
{{ .Release.Name }}-join-token
{{- end -}}
{{- end }}
