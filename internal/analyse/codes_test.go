package analyse

import (
	"os"
	"regexp"
	"testing"
)

func TestEveryCodeIsExplained(t *testing.T) {
	source, err := os.ReadFile("analyse.go")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[Code]int{}
	for _, c := range Codes {
		explained[c.Code]++
		if c.Meaning == "" || c.Remedy == "" || c.Severity == "" {
			t.Errorf("%+v says too little", c)
		}
	}
	declared := regexp.MustCompile(`Code += "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(declared) != len(Codes) {
		t.Errorf("%d codes are declared, %d explained", len(declared), len(Codes))
	}
	for _, d := range declared {
		if explained[Code(d[1])] != 1 {
			t.Errorf("%s is explained %d times", d[1], explained[Code(d[1])])
		}
	}
}
