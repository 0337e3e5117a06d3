package api

// CaptureRequest records what goes over the wire between nodes.
type CaptureRequest struct {
	Seconds int // how long, 1..600
	// PodsOnly leaves out connections that a node itself ends which are no tunnels (the proxies' with the control plane).
	PodsOnly bool
}

// CaptureReport is what was seen on the links between nodes, one entry per TCP connection.
type CaptureReport struct {
	Seconds     float64        `json:"seconds"`
	Packets     int            `json:"packets"`
	Dropped     int            `json:"dropped"` // packets the kernel could not hand over: the report is incomplete if not 0
	Connections []CapturedConn `json:"connections"`
}

// Class is what the payload of a connection is, judged from its bytes alone.
type Class string

// The classes of payload. A connection is TLS only if every byte seen belongs to well-formed TLS records.
const (
	ClassTLS       Class = "tls"
	ClassHTTP      Class = "http"      // a readable HTTP/1 request or response, or HTTP/2 in clear
	ClassPlaintext Class = "plaintext" // something else that is not TLS
	ClassEmpty     Class = "empty"     // no payload seen
)

// CapturedConn is one TCP connection between nodes. Src opened it if the opening was seen, else the side with the higher port is taken for it.
type CapturedConn struct {
	Src     string `json:"src"` // ip:port
	Dst     string `json:"dst"`
	SrcNode string `json:"srcNode,omitempty"`
	DstNode string `json:"dstNode,omitempty"`
	SrcPod  string `json:"srcPod,omitempty"` // namespace/name of the pod that has the address
	DstPod  string `json:"dstPod,omitempty"`
	Port    int    `json:"port"` // of Dst
	// SawSYN is true if the connection was opened while recording.
	SawSYN    bool   `json:"sawSyn"`
	BytesSent int    `json:"bytesSent"` // payload Src to Dst
	BytesRecv int    `json:"bytesRecv"`
	Class     Class  `json:"class"`
	Records   int    `json:"records,omitempty"` // TLS records seen, both directions
	Sample    []byte `json:"sample,omitempty"`  // first payload bytes seen, at most 256, of the more telling direction
}
