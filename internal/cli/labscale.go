package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/lab/scenario"
)

// scaleFlags replace the sizes of experiments on the control plane; zero leaves the scenario's.
type scaleFlags struct {
	services, pods, proxies int
	rates                   []float64
}

func (f *scaleFlags) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.services, "services", 0, "cp-scale: services (left out: the scenario's)")
	cmd.Flags().IntVar(&f.pods, "pods", 0, "cp-scale: pods (left out: the scenario's, or two for each of --services)")
	cmd.Flags().IntVar(&f.proxies, "proxies", 0, "cp-scale: node proxies that follow the control plane (left out: the scenario's)")
	cmd.Flags().Float64SliceVar(&f.rates, "rates", nil, "cp-scale: changes per second, each a setting of its own (left out: the scenario's)")
}

func (f *scaleFlags) apply(scenarios []*scenario.Scenario) error {
	if f.services == 0 && f.pods == 0 && f.proxies == 0 && len(f.rates) == 0 {
		return nil
	}
	found := false
	for _, s := range scenarios {
		if s.Control == nil {
			continue
		}
		found = true
		if f.services != 0 {
			s.Control.Services, s.Control.Pods = f.services, 2*f.services
		}
		if f.pods != 0 {
			s.Control.Pods = f.pods
		}
		if f.proxies != 0 {
			s.Control.Proxies = f.proxies
		}
		if len(f.rates) > 0 {
			s.Control.Rates = f.rates
		}
		if err := s.Control.Validate(); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	if !found {
		return fmt.Errorf("--services, --pods, --proxies and --rates are for the scenario cp-scale alone: name it, or leave them out")
	}
	return nil
}
