package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Away says whether an error means that the API server was not there to answer, rather than that it refused: it cannot be reached, or
// it says itself that it, or its store, is not able to. Waiting helps, and nothing else that this program could do.
func Away(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// Unusable says, of an error that no API server answered with, why it is not one of a server that is away, and the fix: a certificate that is
// not accepted, credentials that cannot be had, a proxy on the way. It is empty for an error of another sort.
func Unusable(err error) (why, fix string) {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return "", ""
	}
	var wrong *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	var op *net.OpError
	text := Cause(err)
	switch {
	case errors.As(err, &wrong), errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid):
		return "its certificate is not accepted: " + text, "correct certificate-authority-data and server in the kubeconfig, if what answers there is the API server; and see this machine's clock"
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return "what answers there does not speak TLS: " + text, "correct server in the kubeconfig"
	case errors.As(err, &op) && op.Op == "remote error":
		return "it does not accept the client's certificate: " + text, "renew client-certificate-data in the kubeconfig (log in to the cluster again)"
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return "the proxy on the way to it does not answer: " + text, "correct HTTPS_PROXY and NO_PROXY, or proxy-url in the kubeconfig"
	case strings.Contains(text, "getting credentials: "): // client-go wraps nothing there
		return "the credentials for it cannot be had: " + text, "install the program that the kubeconfig names under users.exec, or log in again with it"
	}
	return "", ""
}

// Cause is the part of an error that people need: without the URL that was asked, which only repeats what is known.
func Cause(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// Rule is one rule of a ClusterRole, as it is written there.
func Rule(group, resource string, verbs ...string) string {
	return fmt.Sprintf(`{apiGroups: [%q], resources: [%q], verbs: [%s]}`, group, resource, strings.Join(verbs, ", "))
}

// Refusal says why the API server refuses an act, and what fixes it. It is empty for an error of another sort: see Away.
func Refusal(err error, group, resource string, verbs ...string) string {
	name := resource
	if group != "" {
		name += "." + group
	}
	what := join(verbs)
	switch {
	case Inadmissible(err):
		return "the API server does not admit it: " + Cause(err)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("it may not %s %s; its ClusterRole needs the rule %s", what, name, Rule(group, resource, verbs...))
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept its credentials; in a pod restart it, else renew what the kubeconfig names"
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server does not serve %s", name)
	case apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err):
		return fmt.Sprintf("the API server does not serve %s in an encoding that is understood here: %s", name, Cause(err))
	}
	return ""
}

// Inadmissible says whether an answer that forbids is not for want of a right: a quota is used up, a policy or a webhook refuses. The API server
// has one code for all of these.
func Inadmissible(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	text := err.Error()
	return slices.ContainsFunc([]string{"quota: ", "ValidatingAdmissionPolicy", "admission webhook", "forbidden by", "because it is being terminated"}, func(sign string) bool {
		return strings.Contains(text, sign)
	})
}

func join(verbs []string) string {
	if len(verbs) < 2 {
		return strings.Join(verbs, "")
	}
	last := len(verbs) - 1
	return strings.Join(slices.Clone(verbs[:last]), ", ") + " or " + verbs[last]
}
