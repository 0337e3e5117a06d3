package cli

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/spelling"
)

// proxyVariablePrefix is that of the variables that lateen-proxy alone reads. Names without it may be those of other proxies and of libraries.
const proxyVariablePrefix = "LATEEN_"

// proxyVariableNames is made by `make reference` from what lateen-proxy declares: its variables with the prefix, one a line.
//
//go:embed proxyvariables.txt
var proxyVariableNames string

// checkVariableName refuses a name with the prefix that lateen-proxy does not read. The proxy itself ignores such a variable.
func checkVariableName(name string) error {
	known := strings.Fields(proxyVariableNames)
	if !strings.HasPrefix(strings.ToUpper(name), proxyVariablePrefix) || slices.Contains(known, name) {
		return nil
	}
	fix := didYouMean("", nearestVariable(name, known))
	if fix == "" {
		fix = "`lateen-proxy node --reference json` lists the variables that it reads"
	}
	return usageError{&api.Error{Message: fmt.Sprintf("--proxy-env: no node proxy reads %s", name), Fix: fix}}
}

// nearestVariable compares names without the prefix: all have it, and it would let more of the rest differ.
func nearestVariable(name string, known []string) string {
	bare := make([]string, len(known))
	for i, k := range known {
		bare[i] = strings.TrimPrefix(k, proxyVariablePrefix)
	}
	if near := spelling.Nearest(name[len(proxyVariablePrefix):], bare); near != "" {
		return proxyVariablePrefix + near
	}
	return ""
}
