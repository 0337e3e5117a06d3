// Command dnsask asks a resolver one question and prints the reply on one line: its code, its flags, the name as the
// question came back, the longest time to live, the size, and what was answered, sorted. Acceptance scripts run it inside
// a pod's network; the messages are made and read by a library that the proxy does not use.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

func main() {
	server := flag.String("server", "10.96.0.10:53", "whom to ask")
	network := flag.String("net", "udp", "udp or tcp")
	kind := flag.String("type", "A", "record type")
	size := flag.Uint("edns", 0, "payload to offer with EDNS; 0: no EDNS")
	opcode := flag.Int("opcode", dns.OpcodeQuery, "operation")
	wait := flag.Duration("wait", 5*time.Second, "how long to wait for the reply")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: dnsask [flags] NAME")
		os.Exit(64)
	}
	line, err := ask(*server, *network, flag.Arg(0), *kind, uint16(*size), *opcode, *wait)
	if err != nil {
		fmt.Fprintln(os.Stderr, "dnsask:", err)
		os.Exit(1)
	}
	fmt.Println(line)
}

func ask(server, network, name, kind string, size uint16, opcode int, wait time.Duration) (string, error) {
	t, ok := dns.StringToType[kind]
	if !ok {
		return "", fmt.Errorf("%q is no record type", kind)
	}
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), t)
	question.Opcode = opcode
	if size > 0 {
		question.SetEdns0(size, false)
	}
	client := dns.Client{Net: network, Timeout: wait, UDPSize: max(size, dns.MinMsgSize)}
	reply, _, err := client.Exchange(question, server)
	if err != nil {
		return "", err
	}
	var flags []string
	for name, set := range map[string]bool{"aa": reply.Authoritative, "tc": reply.Truncated, "rd": reply.RecursionDesired, "ra": reply.RecursionAvailable} {
		if set {
			flags = append(flags, name)
		}
	}
	slices.Sort(flags)
	echoed := "-"
	if len(reply.Question) == 1 {
		echoed = reply.Question[0].Name
	}
	var ttl uint32
	var answers []string
	for _, record := range reply.Answer {
		ttl = max(ttl, record.Header().Ttl)
		fields := strings.Fields(strings.TrimPrefix(record.String(), record.Header().String()))
		answers = append(answers, fields[len(fields)-1])
	}
	slices.Sort(answers)
	return fmt.Sprintf("%s %s %s ttl=%d bytes=%d n=%d %s", dns.RcodeToString[reply.Rcode], strings.Join(flags, ","), echoed, ttl,
		reply.Len(), len(answers), strings.Join(answers, " ")), nil
}
