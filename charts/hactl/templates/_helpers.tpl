{{/* Names and labels. Each contains the name of the release, so that several releases can share a namespace. */}}
{{- define "hactl.name" -}}
{{- if contains "hactl" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-hactl" (.Release.Name | trunc 34 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* Labels of pods and selectors. They contain no version, because every upgrade would restart the pods. */}}
{{- define "hactl.selectorLabels" -}}
app.kubernetes.io/name: hactl
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "hactl.labels" -}}
{{ include "hactl.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Image of a component: its own, or the common one. */}}
{{- define "hactl.image" -}}
{{- $image := .root.Values.image -}}
{{- if .own }}{{ .own }}
{{- else if $image.digest }}{{ printf "%s@%s" $image.repository $image.digest }}
{{- else }}{{ printf "%s:%s" $image.repository ($image.tag | default .root.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* Secrets with certificates: those of cert-manager, or of the values. */}}
{{- define "hactl.controllerSecret" -}}
{{- if .Values.certManager.enabled }}{{ include "hactl.name" . }}-controller-tls{{ else }}{{ .Values.tls.controllerSecret }}{{ end }}
{{- end }}
{{- define "hactl.metricsSecret" -}}
{{- if .Values.certManager.enabled }}{{ include "hactl.name" . }}-metrics-tls{{ else }}{{ .Values.tls.metricsSecret | default .Values.tls.clientSecret }}{{ end }}
{{- end }}

{{- define "hactl.clientSecret" -}}
{{- if .Values.certManager.enabled }}{{ include "hactl.name" . }}-client-tls{{ else }}{{ .Values.tls.clientSecret }}{{ end }}
{{- end }}
{{- define "hactl.etcdSecret" -}}
{{- if .Values.certManager.enabled }}{{ include "hactl.name" . }}-etcd-tls{{ else }}{{ .Values.etcd.bundled.secret }}{{ end }}
{{- end }}
{{- define "hactl.issuer" -}}
{{- if .Values.certManager.issuerRef.name }}{{ toYaml .Values.certManager.issuerRef }}
{{- else }}
name: {{ include "hactl.name" . }}-ca
kind: Issuer
group: cert-manager.io
{{- end }}
{{- end }}

{{/* Client URLs of the etcd members. */}}
{{- define "hactl.endpoints" -}}
{{- if .Values.etcd.bundled.enabled -}}
{{- $name := include "hactl.name" . -}}
{{- $urls := list -}}
{{- range $i := until (int .Values.etcd.bundled.replicas) -}}
{{- $urls = append $urls (printf "https://%s-etcd-%d.%s-etcd.%s.svc:2379" $name $i $name $.Release.Namespace) -}}
{{- end -}}
{{ join "," $urls }}
{{- else -}}
{{ join "," .Values.etcd.endpoints }}
{{- end }}
{{- end }}
{{- define "hactl.etcdIsTls" -}}
{{- if hasPrefix "https://" (include "hactl.endpoints" .) }}yes{{ end }}
{{- end }}

{{/* URL of the API for other pods. */}}
{{- define "hactl.server" -}}
https://{{ include "hactl.name" . }}-controller.{{ .Release.Namespace }}.svc:{{ .Values.controller.service.port }}
{{- end }}

{{/* Options with which hactl connects to the API, for the hook and the test. */}}
{{- define "hactl.clientEnv" -}}
- {name: HACTL_SERVER, value: {{ include "hactl.server" . | quote }}}
- {name: HACTL_CERTIFICATE_AUTHORITY, value: /etc/hactl/tls/ca.crt}
- {name: HACTL_CLIENT_CERTIFICATE, value: /etc/hactl/tls/tls.crt}
- {name: HACTL_CLIENT_KEY, value: /etc/hactl/tls/tls.key}
{{- end }}

{{/* Security context of pods that need no permissions. */}}
{{- define "hactl.unprivileged" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "hactl.unprivilegedContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "hactl.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ .hosts }}
    labelSelector:
      matchLabels: {{- include "hactl.selectorLabels" . | nindent 8 }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "hactl.selectorLabels" . | nindent 8 }}
{{- end }}

{{/* Directories of the machine, mounted at the same path in the container. */}}
{{- define "hactl.hostFolderVolumes" -}}
{{- range $i, $path := .Values.nodes.hostFolders }}
- name: folder-{{ $i }}
  hostPath: {path: {{ $path }}, type: Directory}
{{- end }}
{{- end }}
{{- define "hactl.hostFolderMounts" -}}
{{- range $i, $path := .Values.nodes.hostFolders }}
- {name: folder-{{ $i }}, mountPath: {{ $path }}, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end }}

{{/* Whether objects of a kind are created: "yes" or empty. */}}
{{- define "hactl.wanted" -}}
{{- if or (eq .create "always") (and (eq .create "auto") (.root.Capabilities.APIVersions.Has .kind)) }}yes{{ end }}
{{- end }}
