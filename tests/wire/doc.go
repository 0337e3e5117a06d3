// Package wire puts another implementation of TLS 1.3 and HTTP/2 (Go's) at the other end of our tunnels. It owns no
// behaviour: what a tunnel must do is said in crates/hbone and crates/tls, and these tests find out who else agrees.
package wire
