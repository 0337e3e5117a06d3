package cli

import (
	"slices"
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

func TestAProxyIsReplacedByTheExecutableThatOneFlagNames(t *testing.T) {
	for line, want := range map[string]string{
		"":                            `{"drainSeconds":600}`,
		"--binary /opt/lateen-proxy":  `{"binary":"/opt/lateen-proxy","drainSeconds":600}`,
		"--ztunnel /opt/ztunnel":      `{"binary":"/opt/ztunnel","ztunnel":true,"drainSeconds":600}`,
		"--ztunnel /a --binary /b":    "",
		"--ztunnel /a --drain=-1s":    "",
		"--ztunnel /opt/z --drain=5s": `{"binary":"/opt/z","ztunnel":true,"drainSeconds":5}`,
	} {
		f := newFake(t)
		r := f.run("", append([]string{"proxy", "replace", "n1"}, strings.Fields(line)...)...)
		if want == "" {
			if r.code != ExitUsage || f.askedFor("POST") {
				t.Errorf("%s: exit code %d: %s", line, r.code, r.stderr)
			}
			continue
		}
		if asked := "POST /v1/nodes/n1/proxy/replace " + want; !slices.Contains(f.asked, asked) {
			t.Errorf("%s: the engine was asked %q, want %q", line, f.asked, asked)
		}
	}
}
