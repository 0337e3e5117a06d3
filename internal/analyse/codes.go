package analyse

// Explanation describes a code.
type Explanation struct {
	Code     Code
	Severity Severity
	// State is the state of the object because of such a finding; empty if the object stays in force as it is written.
	State State
	// Meaning describes the mistake and Remedy its correction; both end without a full stop.
	Meaning, Remedy string
}

// Codes explain all codes, in the order of the reference page.
var Codes = []Explanation{
	{PrincipalScheme, Warning, Partial, "a principal of a rule begins with `spiffe://`; proxies compare principals without a scheme, so it matches no identity", "leave out `spiffe://`"},
	{PrincipalForm, Warning, Partial, "a principal of a rule is not written as `TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT`", "write it so, or use `serviceAccounts`"},
	{ForeignTrustDomain, Warning, Partial, "a principal of a rule names another trust domain than the mesh's, its aliases and `cluster.local`", "correct the trust domain, or name it among the mesh's aliases if its peers count as the mesh's own"},
	{UnknownNamespace, Warning, Partial, "a rule names a namespace that does not exist", "correct the name"},
	{UnknownServiceAccount, Warning, Partial, "a rule names a service account that does not exist; on Kubernetes, one that no pod runs as", "correct the name"},
	{UnmatchedPattern, Warning, Partial, "a rule has a pattern that matches no identity of the mesh", "correct the pattern"},
	{PeerNotEnrolled, Warning, Partial, "the pods that a rule names are not enrolled; they connect without an identity, so the rule does not match them", "enrol their namespace; match pods that cannot be enrolled by `ipBlocks`"},
	{PeerWithoutPods, Info, "", "a rule names a service account or a namespace that no pod has now", "nothing, if the pods are still to come"},
	{UndeclaredPort, Info, "", "a rule names a port that no container of the policy's pods declares, though each of them declares some", "correct the port, unless the program listens on it all the same"},
	{UnmatchedPath, Warning, Partial, "a rule for waypoints has a path pattern that matches no path, since paths are normalised before policies see them or requests with such a path are refused", "correct the pattern; the finding names the cause"},
	{EscapedPath, Warning, Partial, "a path pattern of a rule that keeps requests out matches paths with an escape alone, as `/a%3Fb` for `/a?b`", "correct the pattern; the finding names the cause"},
	{SelectsNoPod, Warning, Ineffective, "no pod has the labels of the policy's selector", "correct the labels"},
	{NamespaceMissing, Warning, Ineffective, "the policy's own namespace does not exist", "correct the namespace"},
	{NamespaceWithoutPods, Warning, Ineffective, "nothing runs in the policy's namespace", "nothing, if the pods are still to come"},
	{NotEnforced, Warning, Ineffective, "none of the pods that the policy chooses is enrolled, so no proxy enforces it; as information, if some of them are not", "enrol their namespace"},
	{Unsupported, Warning, Ineffective, "node proxies do not enforce policies of this action without `targetRefs`", "use ALLOW or DENY, or name what a waypoint serves in `targetRefs`"},
	{PartlyEnforced, Warning, Partial, "node proxies enforce a part of the policy; the condition `Accepted` says which", "use attributes of connections alone"},
	{RefusesAll, Warning, RefusingAll, "no rule of an ALLOW policy can match, and no other policy allows anything: nobody can connect to the pods; as information, if the policy has no rules", "correct or delete the policy"},
	{AllowsNothing, Warning, Partial, "no rule of an ALLOW policy can match; other policies allow connections to its pods", "correct or delete the policy"},
	{DeniesNothing, Warning, Ineffective, "no rule of a DENY policy can match", "correct or delete the policy"},
	{DeniesAll, Info, "", "a rule of a DENY policy matches every connection", "nothing, if that is meant"},
	{PolicyDryRun, Info, DryRun, "the annotation `istio.io/dry-run` has the policy report and not enforce", "remove the annotation to enforce the policy"},
	{UntypedPort, Info, "", "a RequestAuthentication holds for a service that has a port without a protocol that the mesh knows; its waypoint refuses text there that is no valid request", "name it: `appProtocol: http` of a Service, `protocol: HTTP` of a ServiceEntry, or TCP if the port carries no requests"},
	{UnknownMode, Warning, "", "the label `istio.io/dataplane-mode` of a namespace, or of its pods, is neither `ambient` nor `none`", "use one of the two"},
	{InjectionLabel, Warning, "", "the namespace asks for sidecars by `istio-injection=enabled` and is not in the mesh", "set `istio.io/dataplane-mode=ambient`"},
}
