package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

func (cmds proxyCommands) caCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "look at the mesh's certificate authority, replace its root",
		Example: `  # Which root signs, which are trusted, and how far a rotation is.
  lateen ca status

  # Another root; no request fails.
  lateen ca rotate`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cmds.caStatusCommand(), cmds.caRotateCommand())
	return cmd
}

func (cmds proxyCommands) caStatusCommand() *cobra.Command {
	formats := []printer.Format{printer.Table, printer.JSON, printer.YAML}
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "show which root signs, which are trusted, and what a rotation waits for",
		Example: `  lateen ca status -o json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			return cmds.caStatus(cmd.Context(), format)
		},
	}
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

func (cmds proxyCommands) caStatus(ctx context.Context, format printer.Format) error {
	s, err := cmds.app.client().CA(ctx)
	if err != nil {
		return err
	}
	cmds.app.addressAll(&s)
	if format.Structured() {
		return printer.Write(cmds.app.Stdout, format, s)
	}
	return printer.CA(cmds.app.Stdout, s, cmds.app.Out, cmds.app.Now())
}

func (cmds proxyCommands) caRotateCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "replace the root certificate, in stages that nobody notices",
		Example: `  # Return when the old root is trusted no more.
  lateen ca rotate --wait`,
		Long: `First every proxy learns to trust the next root, then it signs, then the old one goes. Each stage lasts until no certificate
from before it is in use: proxies renew at half of a certificate's life. On one machine it is known when that is so; in a cluster a stage
lasts as long as a certificate may live, so with certificates of a day the whole takes two.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmds.caRotate(cmd.Context(), wait, timeout) },
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the old root is trusted no more")
	cmd.Flags().DurationVar(&timeout, "timeout", 72*time.Hour, "how long to wait at most; the rotation goes on in any case")
	return cmd
}

func (cmds proxyCommands) caRotate(ctx context.Context, wait bool, timeout time.Duration) error {
	before, err := cmds.app.client().CA(ctx)
	if err != nil {
		return err
	}
	if err := cmds.app.client().RotateCA(ctx); err != nil {
		return err
	}
	if !wait {
		if err := cmds.app.printf("rotation of the root requested\n"); err != nil {
			return err
		}
		cmds.app.next("lateen ca status" + cmds.app.meshFlag())
		return nil
	}
	return cmds.rotated(ctx, before, timeout)
}

const (
	// unansweredFor is how long nobody may answer while a rotation is waited for: it goes on without being watched.
	unansweredFor = 2 * time.Minute
	// leastPoll and longestPoll are the pauses between two looks at a rotation.
	leastPoll, longestPoll = 200 * time.Millisecond, 2 * time.Second
)

// rotated follows a rotation to its end.
func (cmds proxyCommands) rotated(ctx context.Context, before api.CAStatus, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	progress := cmds.app.progress()
	defer progress.Abandon()
	shown, held, pause := "", "", leastPoll
	var unanswered time.Time
	for {
		s, err := cmds.app.client().CA(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the rotation was not over after %s: it is at stage %s; it goes on, see `lateen ca status%s`", timeout, shown, cmds.app.meshFlag())
		case err != nil && unanswered.IsZero():
			unanswered = time.Now()
		case err != nil && time.Since(unanswered) > unansweredFor:
			return err
		case err != nil:
		case s.Trouble != "":
			return fmt.Errorf("the rotation cannot go on: %s", s.Trouble)
		case s.Signing != before.Signing && len(s.Trusted) == 1:
			progress.Done(printer.CAStage(api.CADropping))
			return cmds.app.printf("root replaced: %s signs and is trusted alone\n", s.Signing)
		}
		if err == nil {
			unanswered = time.Time{}
			if s.Stage != shown {
				if printer.CAStage(shown) != "" {
					progress.Done(printer.CAStage(shown))
				}
				if shown = s.Stage; printer.CAStage(shown) != "" {
					progress.Start(printer.CAStage(shown))
				}
			}
			if s.Held != held {
				if held = s.Held; held != "" {
					progress.Note("the next stage waits: " + held)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(longestPoll, pause*5/4)
		}
	}
}
