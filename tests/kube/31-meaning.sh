#!/usr/bin/env bash
# Translation of objects that only Kubernetes has: a Service whose EndpointSlice names a pod, virtual addresses that Istio left in
# the status of ServiceEntries, and the names of pods of Jobs.
source "$(dirname "$0")/lib.sh"
check "echo servers and clients in the mesh" echo_in meaning istio.io/dataplane-mode=ambient

control=$(pods lateen-system app=lateen-control | head -1)
# resource NAME FILTER: what jq says of the content of a resource that the control plane sends.
resource() { in_pod "lateen-system/$control" curl -sf 'http://127.0.0.1:15014/debug/resources?type=Address' | jq -r --arg name "$1" ".[] | select(.name == \$name) | .content | $2"; }
says() { local got; got=$(resource "$1" "$2") && [ "$got" = "$3" ] || { echo "it is $got"; return 1; }; }

# A Service without a selector, as a database's operator has it: the slice names the leader.
leader=$(pod_on meaning app=echo node2)
cluster() { in_pod "lateen-system/$control" curl -sf 'http://127.0.0.1:15014/debug/resources?type=Address' | jq -er --arg pod "//Pod/meaning/$leader" '[.[].name | select(endswith($pod))][0] // empty | split("/")[0]'; }
cluster=$(eventually 60 cluster) || not_ok "the control plane knows the pod: $cluster"
slice() { # NAMESPACE OF THE POD, ADDRESS
  k apply -f - <<Y
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: leader-1, namespace: meaning, labels: {kubernetes.io/service-name: leader}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: ["$2"], conditions: {ready: true}, targetRef: {kind: Pod, namespace: $1, name: $leader, uid: $(field meaning "$leader" .metadata.uid)}}]
Y
}
check "a Service without a selector" k apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: leader, namespace: meaning}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: meaning}
spec: {mtls: {mode: STRICT}}
Y
check "its slice names a pod" slice meaning "$(pod_ip meaning "$leader")"
offers='.workload.services | to_entries[] | select(.key | startswith("meaning/leader.")) | .value.ports[0] | "\(.servicePort) \(.targetPort)"'
check "the pod serves it, on the slice's port" eventually 30 says "$cluster//Pod/meaning/$leader" "$offers" "80 8080"
leading() { [ "$(code meaning/client1 "http://$(service_ip meaning leader)/")" = 200 ]; }
check "it is reached, under STRICT" eventually 60 leading
leader_log() { k -n lateen-system logs "$(pod_on lateen-system app=lateen-node node2)" --tail=400 | grep 'direction="inbound"' | grep "dst.workload=\"$leader\"" | found 'src.identity="spiffe://cluster.local/ns/meaning/sa/client"'; }
check "by the client's identity" eventually 60 leader_log
check "the slice is no workload beside it" says "$cluster/discovery.k8s.io/EndpointSlice/meaning/leader-1/$(pod_ip meaning "$leader")" . ""
check "another namespace's slice is said to name it" slice policy "$(pod_ip meaning "$leader")"
check "and it does not serve the Service any more" eventually 30 says "$cluster//Pod/meaning/$leader" "$offers" ""
check "nor at an address that it has not" slice meaning 10.99.99.99
check "which is a plain address" eventually 30 says "$cluster/discovery.k8s.io/EndpointSlice/meaning/leader-1/10.99.99.99" .workload.name leader-1
check "it does not serve either" says "$cluster//Pod/meaning/$leader" "$offers" ""
check "the slice is as it was" slice meaning "$(pod_ip meaning "$leader")"
check "it is reached again" eventually 60 leading

# As a take-over finds it: Istio has chosen, Lateen has not.
check "an entry for which nothing is chosen" k apply -f - <<'Y'
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: kept, namespace: meaning, labels: {networking.istio.io/enable-autoallocate-ip: "false"}}
spec: {hosts: [kept.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}
Y
check "Istio's addresses are in its status" k -n meaning patch serviceentry kept --subresource=status --type=merge \
  -p '{"status":{"addresses":[{"host":"kept.example.com","value":"240.240.0.77"},{"host":"kept.example.com","value":"2001:2::77"}]}}'
check "it is to have addresses" k -n meaning label serviceentry kept networking.istio.io/enable-autoallocate-ip-
check "it has Istio's" eventually 30 says meaning/kept.example.com '[.service.addresses[].address] | join(" ")' "$(printf '\360\360\000\115' | base64) $(printf '\040\001\000\002\000\000\000\000\000\000\000\000\000\000\000\167' | base64)"
kept() { k -n lateen-system get configmap lateen-assignments -o json | jq -e '.data.addresses | fromjson | .["meaning/kept.example.com"] == ["240.240.0.77", "2001:2::77"]'; }
check "they are kept" eventually 30 kept
check "the status has them still" bash -c "'$KUBE/k' -n meaning get serviceentry kept -o json | jq -e '.status.addresses | length == 2'"

check "a CronJob's run" k apply -f - <<'Y'
apiVersion: batch/v1
kind: Job
metadata: {name: backup-28374650, namespace: meaning}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [sleep, "1000000"]}]
Y
check "its pod runs" eventually 60 k -n meaning wait --for=condition=Ready pod -l job-name=backup-28374650 --timeout=1s
run=$(pods meaning job-name=backup-28374650)
check "it is named by the CronJob" eventually 30 says "$cluster//Pod/meaning/$run" '.workload | "\(.workloadName) \(.workloadType) \(.canonicalName)"' "backup CRONJOB backup"
check "all of that goes" k delete namespace meaning --wait=false
finish
