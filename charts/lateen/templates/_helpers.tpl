{{/* The image of a component: (dict "root" $ "name" "control"). */}}
{{- define "lateen.image" -}}
{{ .root.Values.image.registry }}/{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* The labels of every object: (dict "root" $ "component" "control"). */}}
{{- define "lateen.labels" -}}
app: lateen-{{ .component }}
app.kubernetes.io/name: lateen
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: lateen
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{/* The labels of pods. The mesh never carries its own parts' connections. */}}
{{- define "lateen.podLabels" -}}
app: lateen-{{ .component }}
app.kubernetes.io/name: lateen
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: lateen
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
istio.io/dataplane-mode: none
{{- range $name, $value := .values.podLabels }}
{{- if or (eq $name "app") (hasPrefix "app.kubernetes.io/" $name) (eq $name "istio.io/dataplane-mode") }}
{{- fail (printf "%s.podLabels.%s is a label of the chart's own; choose another" $.component $name) }}
{{- end }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* The annotations of pods: what the settings were, so that a change of them replaces the pods, and where the metrics are. */}}
{{- define "lateen.podAnnotations" -}}
lateen.dev/settings: {{ include "lateen.settings" .root | sha256sum | trunc 16 }}
{{- if .root.Values.monitoring.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- range $name, $value := .values.podAnnotations }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* What all parts of the mesh must agree on, under the names that the node proxy reads. */}}
{{- define "lateen.settings" -}}
TRUST_DOMAIN: {{ .Values.mesh.trustDomain | quote }}
TRUST_DOMAIN_ALIASES: {{ join "," .Values.mesh.trustDomainAliases | quote }}
CLUSTER_ID: {{ .Values.mesh.clusterID | quote }}
NETWORK: {{ .Values.mesh.network | quote }}
CLUSTER_DOMAIN: {{ .Values.mesh.clusterDomain | quote }}
ROOT_NAMESPACE: {{ .Values.mesh.rootNamespace | quote }}
{{- end -}}

{{/* Environment variables, the user's before the chart's: (dict "component" "node" "defaults" DICT "env" DICT). settings are what
lateen.settings gives, as they are and not from the ConfigMap: while the API server is away a kubelet starts no container whose environment
it would have to read there. */}}
{{- define "lateen.env" -}}
{{- range $name, $_ := .env }}
{{- if has $name (list "NODE_NAME" "POD_NAME" "POD_NAMESPACE" "INSTANCE_IP" "SERVICE_ACCOUNT" "TRUST_DOMAIN" "TRUST_DOMAIN_ALIASES" "CLUSTER_ID" "NETWORK" "CLUSTER_DOMAIN" "ROOT_NAMESPACE") }}
{{- fail (printf "%s.env.%s is set by the chart; the settings of the whole mesh are the values mesh.*" $.component $name) }}
{{- end }}
{{- end }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- range $name, $value := merge (dict) .env .defaults (.settings | default dict) }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end -}}

{{/* The host names of the control plane. */}}
{{- define "lateen.controlHost" -}}
lateen-control.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* What a pod's spec has from the values of its component: (dict "root" $ "values" .Values.control). */}}
{{- define "lateen.placement" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 0 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
