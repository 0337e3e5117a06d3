package cli

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/cli/printer"
)

// proxyDump is the part of a node proxy's /config_dump that is shown in tables. An unmodified ztunnel writes the same keys.
type proxyDump struct {
	Workloads []struct {
		UID            string   `json:"uid"`
		Name           string   `json:"name"`
		Namespace      string   `json:"namespace"`
		WorkloadIPs    []string `json:"workloadIps"`
		Node           string   `json:"node"`
		Protocol       string   `json:"protocol"`
		Status         string   `json:"status"`
		ServiceAccount string   `json:"serviceAccount"`
		WorkloadName   string   `json:"workloadName"`
		WorkloadType   string   `json:"workloadType"`
		Services       []string `json:"services"`
		Policies       []string `json:"authorizationPolicies"`
		Locality       struct {
			Zone string `json:"zone"`
		} `json:"locality"`
	} `json:"workloads"`
	Services []struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Hostname  string            `json:"hostname"`
		VIPs      []string          `json:"vips"`
		Ports     map[string]uint16 `json:"ports"`
		Endpoints map[string]struct {
			WorkloadUID string `json:"workloadUid"`
			Status      string `json:"status"`
		} `json:"endpoints"`
	} `json:"services"`
	Policies []struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		Action    string `json:"action"`
		Scope     string `json:"scope"`
		DryRun    bool   `json:"dryRun"`
		// Rules are alternatives; each is a list of clauses that must all match, and a clause is a list of alternatives.
		Rules []json.RawMessage `json:"rules"`
	} `json:"policies"`
	Certificates []struct {
		Identity string            `json:"identity"`
		State    string            `json:"state"`
		Chain    []dumpCertificate `json:"certChain"`
		Roots    []dumpCertificate `json:"rootCerts"`
	} `json:"certificates"`
	Pods map[string]struct {
		Info struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"info"`
		Connections struct {
			Inbound  []dumpConnection `json:"inbound"`
			Outbound []dumpConnection `json:"outbound"`
		} `json:"connections"`
	} `json:"workloadState"`
}

type dumpCertificate struct {
	PEM    string    `json:"pem"` // in base64
	Serial string    `json:"serialNumber"`
	From   time.Time `json:"validFrom"`
	Until  time.Time `json:"expirationTime"`
}

type dumpConnection struct {
	Source    string `json:"src"`
	Original  string `json:"originalDst"`
	Actual    string `json:"actualDst"`
	Protocol  string `json:"protocol"`
	Peer      string `json:"peer"`
	State     string `json:"state"`
	AllowedBy string `json:"allowedBy"`
	// Age is nil in the dump of an unmodified ztunnel.
	Age *float64 `json:"ageSeconds"`
}

// in reports whether a namespace is wanted; an empty one wants all.
func in(wanted, namespace string) bool { return wanted == "" || wanted == namespace }

func (d *proxyDump) workloads(namespace string) []printer.ProxyWorkload {
	list := []printer.ProxyWorkload{}
	for _, w := range d.Workloads {
		if !in(namespace, w.Namespace) {
			continue
		}
		owner := w.WorkloadName
		if w.WorkloadType != "" && w.WorkloadType != "pod" {
			owner = w.WorkloadType + "/" + w.WorkloadName
		}
		list = append(list, printer.ProxyWorkload{Namespace: w.Namespace, Name: w.Name, Addresses: w.WorkloadIPs, Node: w.Node, Protocol: w.Protocol,
			Status: w.Status, ServiceAccount: w.ServiceAccount, Workload: owner, Services: w.Services, Policies: w.Policies, Zone: w.Locality.Zone})
	}
	slices.SortFunc(list, func(a, b printer.ProxyWorkload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func (d *proxyDump) services(namespace string) []printer.ProxyService {
	byUID := map[string]int{}
	for i, w := range d.Workloads {
		byUID[w.UID] = i
	}
	list := []printer.ProxyService{}
	for _, s := range d.Services {
		if !in(namespace, s.Namespace) {
			continue
		}
		service := printer.ProxyService{Namespace: s.Namespace, Name: s.Name, Hostname: s.Hostname, Addresses: []string{}, Ports: ports(s.Ports), Endpoints: []printer.ProxyEndpoint{}}
		for _, vip := range s.VIPs {
			_, address, _ := strings.Cut(vip, "/") // network/address
			service.Addresses = append(service.Addresses, cmp.Or(address, vip))
		}
		for _, key := range slices.Sorted(maps.Keys(s.Endpoints)) {
			e := s.Endpoints[key]
			endpoint := printer.ProxyEndpoint{Workload: cmp.Or(e.WorkloadUID, key), Status: e.Status}
			if i, known := byUID[endpoint.Workload]; known {
				w := d.Workloads[i]
				endpoint.Workload, endpoint.Addresses = w.Namespace+"/"+w.Name, w.WorkloadIPs
			}
			service.Endpoints = append(service.Endpoints, endpoint)
		}
		list = append(list, service)
	}
	slices.SortFunc(list, func(a, b printer.ProxyService) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Hostname, b.Hostname))
	})
	return list
}

// ports writes the ports of a service in order, with the target where that is another one.
func ports(of map[string]uint16) []string {
	numbers := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return cmp.Compare(x, y)
	})
	for i, port := range numbers {
		if target := strconv.Itoa(int(of[port])); target != port && target != "0" {
			numbers[i] = port + ":" + target
		}
	}
	return numbers
}

func (d *proxyDump) policies(namespace string) []printer.ProxyPolicy {
	selecting := map[string]int{}
	for _, w := range d.Workloads {
		for _, name := range w.Policies {
			selecting[name]++
		}
	}
	list := []printer.ProxyPolicy{}
	for _, p := range d.Policies {
		if !in(namespace, p.Namespace) {
			continue
		}
		policy := printer.ProxyPolicy{Namespace: p.Namespace, Name: p.Name, Action: p.Action, Scope: p.Scope, DryRun: p.DryRun, Rules: []string{}}
		if p.Scope == "WorkloadSelector" {
			n := selecting[p.Namespace+"/"+p.Name]
			policy.Workloads = &n
		}
		for _, rule := range p.Rules {
			policy.Rules = append(policy.Rules, proxyRuleInWords(rule))
		}
		list = append(list, policy)
	}
	slices.SortFunc(list, func(a, b printer.ProxyPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// proxyRuleInWords writes a rule as "principals a or b and destinationPorts 80". One without clauses matches every connection.
func proxyRuleInWords(raw json.RawMessage) string {
	var rule [][]map[string]any
	if err := json.Unmarshal(raw, &rule); err != nil {
		return string(raw) // a proxy of another version writes it otherwise; its own words say more than none
	}
	var clauses []string
	for _, clause := range rule {
		var alternatives []string
		for _, match := range clause {
			var fields []string
			for _, field := range slices.Sorted(maps.Keys(match)) {
				fields = append(fields, field+" "+valuesInWords(match[field]))
			}
			alternatives = append(alternatives, strings.Join(fields, " and "))
		}
		if len(alternatives) > 1 {
			clauses = append(clauses, "("+strings.Join(alternatives, ", or ")+")")
		} else {
			clauses = append(clauses, alternatives...)
		}
	}
	return cmp.Or(strings.Join(clauses, " and "), "every connection")
}

func valuesInWords(values any) string {
	list, isList := values.([]any)
	if !isList {
		list = []any{values}
	}
	words := make([]string, len(list))
	for i, value := range list {
		words[i] = matchInWords(value)
	}
	return strings.Join(words, " or ")
}

// matchInWords writes a value, or a pattern such as {"Prefix": "a"}.
func matchInWords(value any) string {
	pattern, isPattern := value.(map[string]any)
	if !isPattern || len(pattern) != 1 {
		return fmt.Sprint(value)
	}
	for kind, text := range pattern {
		switch kind {
		case "Exact":
			return fmt.Sprint(text)
		case "Prefix":
			return fmt.Sprint(text) + "*"
		case "Suffix":
			return "*" + fmt.Sprint(text)
		case "Presence":
			return "*"
		}
	}
	return fmt.Sprint(value)
}

func (d *proxyDump) certificates(namespace string) []printer.ProxyCertificate {
	list := []printer.ProxyCertificate{}
	for _, c := range d.Certificates {
		if _, rest, ok := strings.Cut(c.Identity, "/ns/"); namespace != "" && (!ok || !strings.HasPrefix(rest, namespace+"/")) {
			continue
		}
		certificate := printer.ProxyCertificate{Identity: c.Identity, State: c.State, Roots: []printer.ProxyRoot{}}
		if len(c.Chain) > 0 {
			leaf := c.Chain[0]
			certificate.Serial, certificate.ValidFrom, certificate.ValidUntil = hexadecimal(leaf.Serial), leaf.From, leaf.Until
		}
		for _, r := range c.Roots {
			certificate.Roots = append(certificate.Roots, printer.ProxyRoot{Subject: cmp.Or(subject(r.PEM), hexadecimal(r.Serial)), Serial: hexadecimal(r.Serial), ValidUntil: r.Until})
		}
		list = append(list, certificate)
	}
	slices.SortFunc(list, func(a, b printer.ProxyCertificate) int { return cmp.Compare(a.Identity, b.Identity) })
	return list
}

// hexadecimal writes a decimal serial number as openssl does.
func hexadecimal(serial string) string {
	n, ok := new(big.Int).SetString(serial, 10)
	if !ok {
		return serial
	}
	text := fmt.Sprintf("%X", n)
	if len(text)%2 == 1 {
		text = "0" + text
	}
	return text
}

// subject is the subject of a certificate in PEM, which is in base64 itself; empty if it cannot be read.
func subject(encoded string) string {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return ""
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	return certificate.Subject.String()
}

func (d *proxyDump) connections(namespace string) []printer.ProxyConnection {
	list := []printer.ProxyConnection{}
	for _, pod := range d.Pods {
		if !in(namespace, pod.Info.Namespace) {
			continue
		}
		for direction, connections := range map[string][]dumpConnection{"inbound": pod.Connections.Inbound, "outbound": pod.Connections.Outbound} {
			for _, c := range connections {
				list = append(list, printer.ProxyConnection{Namespace: pod.Info.Namespace, Pod: pod.Info.Name, Direction: direction, Source: c.Source,
					Destination: cmp.Or(c.Original, c.Actual), Actual: c.Actual, Protocol: c.Protocol, Peer: c.Peer, State: c.State, AllowedBy: c.AllowedBy, AgeSeconds: c.Age})
			}
		}
	}
	slices.SortFunc(list, func(a, b printer.ProxyConnection) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Destination, b.Destination))
	})
	return list
}

// readDump reads the tables' part of a dump.
func readDump(page []byte) (*proxyDump, error) {
	var d proxyDump
	if err := json.Unmarshal(page, &d); err != nil {
		return nil, fmt.Errorf("read the proxy's configuration: %w", err)
	}
	return &d, nil
}
