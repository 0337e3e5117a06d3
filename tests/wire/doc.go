// Package wire puts another implementation of TLS 1.3 and HTTP/2 (Go's) at the other end of our tunnels, and grpc-go on both
// sides of a proxy made of crates/exchange. It owns no behaviour: crates/hbone, crates/tls and crates/exchange say what must
// happen, and these tests find out who else agrees.
package wire
