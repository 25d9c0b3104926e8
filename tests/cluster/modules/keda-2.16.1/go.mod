module keda-vllm-scaler/cluster/keda-2.16.1

go 1.26.0

require github.com/kedacore/keda/v2 v2.16.1

// Replacements don't come with a dependency: these are KEDA's own.
replace (
	github.com/google/cel-go => github.com/google/cel-go v0.20.1
	github.com/prometheus/client_golang => github.com/prometheus/client_golang v1.19.1
	github.com/prometheus/client_model => github.com/prometheus/client_model v0.6.1
	github.com/prometheus/common => github.com/prometheus/common v0.55.0
	k8s.io/api => k8s.io/api v0.31.2
	k8s.io/apimachinery => k8s.io/apimachinery v0.31.2
	k8s.io/apiserver => k8s.io/apiserver v0.31.2
	k8s.io/client-go => k8s.io/client-go v0.31.2
	k8s.io/code-generator => k8s.io/code-generator v0.31.2
	k8s.io/component-base => k8s.io/component-base v0.31.2
	k8s.io/kube-openapi => k8s.io/kube-openapi v0.0.0-20240228011516-70dd3763d340
	k8s.io/metrics => k8s.io/metrics v0.31.2
	github.com/chzyer/logex => github.com/chzyer/logex v1.2.1
	github.com/golang-jwt/jwt/v4 => github.com/golang-jwt/jwt/v4 v4.5.1
	github.com/spf13/viper => github.com/spf13/viper v1.19.0
	golang.org/x/crypto => golang.org/x/crypto v0.31.0
	golang.org/x/net => golang.org/x/net v0.33.0
	golang.org/x/text => golang.org/x/text v0.21.0
	google.golang.org/grpc => google.golang.org/grpc v1.67.1
	gopkg.in/yaml.v3 => gopkg.in/yaml.v3 v3.0.1
)
