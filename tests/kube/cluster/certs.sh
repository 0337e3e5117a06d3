#!/usr/bin/env bash
# certs.sh FOLDER SERVER ADDRESS NODE=ADDRESS...: the authorities, certificates, keys and kubeconfigs of a cluster whose API
# server is reached at the URL SERVER on ADDRESS. They live as long as the cluster.
set -euo pipefail
server=$2 address=$3
mkdir -p "$1" && cd "$1"
umask 077
shift 3

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
authority() { # NAME
  key "$1"
  openssl req -x509 -new -key "$1.key" -sha256 -days 30 -subj "/CN=$1" -out "$1.crt" -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
}
certificate() { # NAME AUTHORITY SUBJECT [ALTERNATIVE-NAMES]
  key "$1"
  openssl req -new -key "$1.key" -subj "$3" -out "$1.csr"
  printf '%s\n' basicConstraints=CA:FALSE keyUsage=critical,digitalSignature extendedKeyUsage=serverAuth,clientAuth ${4:+"subjectAltName=$4"} >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -days 30 -sha256 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
  rm "$1.csr" "$1.ext"
}
kubeconfig() { # NAME: everything in one file, so that it works from anywhere
  cat >"$1.kubeconfig" <<K
apiVersion: v1
kind: Config
clusters: [{name: kube, cluster: {server: "$server", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
contexts: [{name: kube, context: {cluster: kube, user: $1}}]
current-context: kube
K
}

authority ca
authority front-proxy-ca
key sa
openssl ec -in sa.key -pubout -out sa.pub 2>/dev/null
names=DNS:localhost; for n in '' .default .default.svc .default.svc.cluster.local; do names+=,DNS:kubernetes$n; done
certificate apiserver ca /CN=kube-apiserver "$names,IP:127.0.0.1,IP:10.96.0.1,IP:$address"
certificate apiserver-kubelet-client ca /O=system:masters/CN=kube-apiserver-kubelet-client
certificate front-proxy-client front-proxy-ca /CN=front-proxy-client
certificate admin ca /O=system:masters/CN=admin
kubeconfig admin
for c in kube-controller-manager kube-scheduler kube-proxy; do
  certificate $c ca "/CN=system:$c"
  kubeconfig $c
done
for n in "$@"; do
  certificate "${n%%=*}" ca "/O=system:nodes/CN=system:node:${n%%=*}" "DNS:${n%%=*},IP:${n#*=},IP:127.0.0.1"
  kubeconfig "${n%%=*}"
done
