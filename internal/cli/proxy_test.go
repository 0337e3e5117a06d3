package cli

import (
	"strings"
	"testing"
)

func TestCheckLevels(t *testing.T) {
	for levels, want := range map[string]string{
		"":                            "",
		"debug":                       "",
		"info,policy=trace":           "",
		"xds::client=debug,hbone=off": "",
		"loud":                        `"loud" is not a log level`,
		"info,policy=loud":            `"policy=loud" is not a log level`,
		"a&level=debug":               `"a&level" is not a part of the proxy`,
		"info,=debug":                 `"" is not a part of the proxy`,
		"info,":                       `"" is not a log level`,
	} {
		err := checkLevels(levels)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", levels, err, want)
		}
	}
}
