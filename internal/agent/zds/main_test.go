package zds

import (
	"testing"

	"go.uber.org/goleak"
)

// Every test ends what it starts.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
