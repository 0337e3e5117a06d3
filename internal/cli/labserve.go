package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/lab/rest"
)

// serveFlags are the flags of lab serve as they are written.
type serveFlags struct {
	listen              string
	remote              bool
	token               string
	hosts               []string
	results, lab        string
	maxRuns, maxResults int
	generator           string
}

func (cmds labCommands) labServeCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "start, watch and compare load runs over HTTP: a page, and Fortio's REST interface",
		Long: "The page is at /, Fortio's interface at /fortio/rest/run, status and stop. Whoever reaches the server can start load from this machine: it\n" +
			"listens on the loopback address unless told otherwise, and beyond it every request needs the token of --token-file. There is no TLS.",
		Example: `  lateen lab serve

  # As Fortio's scripts do it.
  curl -s 'http://127.0.0.1:8088/fortio/rest/run?url=http://127.0.0.1:8080/&qps=100&c=4&t=5s&save=on'

  # For a whole network; the token is made if the file is not there.
  lateen lab serve --listen 10.0.0.5:8088 --allow-remote --token-file lab.token`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmds.labServe(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8088", "address and port; port 0 takes a free one and says which")
	cmd.Flags().BoolVar(&f.remote, "allow-remote", false, "listen on an address that other machines reach; needs --token-file")
	cmd.Flags().StringVar(&f.token, "token-file", "", "file with the token that every request must have; it is made if it is not there")
	cmd.Flags().StringArrayVar(&f.hosts, "host", nil, "name or address that the server may be asked for, besides localhost and its own addresses (repeatable)")
	cmd.Flags().StringVar(&f.results, "results", "lab-runs", "directory for the results of runs, which fortio report opens as well")
	cmd.Flags().StringVar(&f.lab, "lab-results", "lab-results", "directory with runs of the lab to show")
	cmd.Flags().IntVar(&f.maxRuns, "max-runs", 4, "runs at a time")
	cmd.Flags().IntVar(&f.maxResults, "max-results", 1000, "results to store; when they are full, no run that is to be stored begins")
	cmd.Flags().StringVar(&f.generator, "generator", "", "lateen-load's executable (default: beside this program, then in PATH)")
	return cmd
}

func (cmds labCommands) labServe(ctx context.Context, f serveFlags) error {
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return usagef("--listen %q: write ADDRESS:PORT, such as 127.0.0.1:8088", f.listen)
	}
	if !rest.Loopback(f.listen) {
		if !f.remote {
			return usagef("--listen %s is reached from other machines, which could start load from this one: use 127.0.0.1, or add --allow-remote and --token-file", f.listen)
		}
		if f.token == "" {
			return usagef("--allow-remote needs --token-file: whoever reaches the server could start load from this machine")
		}
	}
	if f.maxRuns < 1 || f.maxResults < 1 {
		return usagef("--max-runs and --max-results are at least 1")
	}
	hosts, err := f.names()
	if err != nil {
		return err
	}
	generator, err := findGenerator(f.generator)
	if err != nil {
		return err
	}
	var token string
	if f.token != "" {
		if token, err = readToken(f.token); err != nil {
			return err
		}
	}
	server, err := rest.New(rest.Options{
		Generator: rest.Generator{Path: generator}, Results: f.results, Lab: f.lab, MaxRuns: f.maxRuns, MaxResults: f.maxResults,
		Hosts: hosts, Token: token, Version: Version(), Now: cmds.app.Now,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("--listen: %w", err), server.Close())
	}
	said := cmds.app.printf("serving on http://%s/ (results in %s); Ctrl-C stops the runs and ends it\n", reachable(listener.Addr()), f.results)
	if token != "" {
		said = errors.Join(said, cmds.app.printf("requests need the token in %s: Authorization: Bearer TOKEN\n", f.token))
	}
	return errors.Join(said, server.Serve(ctx, listener))
}

// names are what the server may be asked for: those of --host, and the one it listens on if that is a name.
func (f serveFlags) names() ([]string, error) {
	var names []string
	for _, host := range f.hosts {
		name, err := rest.HostName(host)
		if err != nil {
			return nil, usagef("--host %q: %w", host, err)
		}
		names = append(names, name)
	}
	at, _, _ := net.SplitHostPort(f.listen)
	if _, err := netip.ParseAddr(at); err != nil && at != "" {
		names = append(names, at)
	}
	return names, nil
}

// reachable is where a listener can be asked for: one on all addresses is at localhost too, and at none that is written 0.0.0.0.
func reachable(address net.Addr) string {
	if a, ok := address.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(a.Port))
	}
	return address.String()
}

// findGenerator is lateen-load's path.
func findGenerator(given string) (string, error) {
	const name = "lateen-load"
	if given == "" {
		if self, err := os.Executable(); err == nil {
			beside := filepath.Join(filepath.Dir(self), name)
			if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
				return beside, nil
			}
		}
		given = name
	}
	path, err := exec.LookPath(given)
	if err != nil {
		return "", fmt.Errorf("find the load generator: %w; name it with --generator", err)
	}
	return filepath.Abs(path)
}

// leastToken is the length in bytes below which a token could be guessed.
const leastToken = 16

// readToken reads a file that only its owner may read, or makes it.
func readToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		var random [32]byte
		_, _ = rand.Read(random[:]) // never fails
		token := hex.EncodeToString(random[:])
		_, err = f.WriteString(token + "\n")
		if err = errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		return token, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("--token-file %s can be read by others: chmod 600 it, and take another token", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < leastToken {
		return "", fmt.Errorf("--token-file %s has %d bytes: a token has at least %d", path, len(token), leastToken)
	}
	return token, nil
}
