package cli

import (
	"context"
	"errors"
	"fmt"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install"
)

// The exit codes, as istioctl uses them: people's scripts know them.
const (
	ExitOK       = 0
	ExitFailure  = 1
	ExitUsage    = 64 // the command line makes no sense
	ExitFindings = 79 // the command worked and found something wrong
)

// exitInterrupted is the shell's code for a program that SIGINT ended.
const exitInterrupted = 130

// exitCodes explains the exit codes in the help of the whole command.
var exitCodes = fmt.Sprintf(`Exit codes
  %-4d done
  %-4d failed, as the error says
  %-4d the command line is wrong; nothing was done
  %-4d check, demo and lab run: done, and something is wrong with the machine, the mesh or the run
  %-4d ended by Ctrl-C; 129 by a closed terminal, 141 by unread output, 143 by SIGTERM
  exec passes on the exit code of its command, and has 126 or 127 for one that cannot be run. diff ends with 1 for a difference and 2 for an error.`, ExitOK, ExitFailure, ExitUsage, ExitFindings, exitInterrupted)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitStatus ends the program with a code and no message: everything has been said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitCode is the program's exit code for what a command returned.
func exitCode(err error) int {
	var status exitStatus
	var usage usageError
	var absent *notRun
	switch {
	case errors.As(err, &absent):
		return absent.code
	case err == nil:
		return ExitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return ExitFailure
}

// explain is the text of an error for people: what went wrong, and the fix on a line of its own.
func explain(err error) (what, fix string) {
	var refusal *api.Error
	if errors.As(err, &refusal) && err.Error() == refusal.Error() {
		return refusal.Message, refusal.Fix
	}
	var absent *notRunning
	if errors.As(err, &absent) && err.Error() == absent.Error() {
		return absent.parts()
	}
	var interrupted *install.Interrupted
	if errors.As(err, &interrupted) {
		return interrupted.Error(), ""
	}
	return err.Error(), ""
}
