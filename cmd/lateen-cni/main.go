// Command lateen-cni is the CNI plugin that has pods of the mesh captured before they start.
// Everything it does is in internal/agent/cni; this is only its process.
package main

import "lateen.dev/lateen/internal/agent/cni"

func main() { cni.Main() }
