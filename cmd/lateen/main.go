// The lateen command: run a mesh on this machine, look into it and measure it. Everything is in internal/cli, and the
// engine that a mesh runs under, which is this program again, in internal/engine/local.
package main

import (
	"os"

	"lateen.dev/lateen/internal/cli"
	"lateen.dev/lateen/internal/engine/local"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case local.EngineVerb:
			os.Exit(local.EngineMain(os.Args[2:]))
		case local.PodVerb:
			os.Exit(local.PodMain(os.Args[2:]))
		}
	}
	os.Exit(cli.Main(os.Args[1:], &localEngine{}))
}
