package listenerstore

import (
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"

	storepb "lateen.dev/lateen/internal/gen/listenerstore"
)

func give(uid string, names ...string) *storepb.ProxyMessage {
	return &storepb.ProxyMessage{Payload: &storepb.ProxyMessage_Give{Give: &storepb.Give{Uid: uid, NetnsInode: 1, Names: names}}}
}

func hello(version storepb.Version, ledgers uint32) *storepb.ProxyMessage {
	return &storepb.ProxyMessage{Payload: &storepb.ProxyMessage_Hello{Hello: &storepb.Hello{Version: version, Ledgers: ledgers}}}
}

func TestParse(t *testing.T) {
	many := make([]string, maxSockets+1)
	for i := range many {
		many[i] = string(rune('a' + i))
	}
	for name, c := range map[string]struct {
		message     *storepb.ProxyMessage
		descriptors int
		good        bool
	}{
		"hello":                          {hello(storepb.Version_V1, 2), 2, true},
		"hello of another version":       {hello(9, 0), 0, false},
		"hello with a ledger too few":    {hello(storepb.Version_V1, 2), 1, false},
		"hello with too many ledgers":    {hello(storepb.Version_V1, maxLedgers+1), maxLedgers + 1, false},
		"give":                           {give("a", "hbone", "outbound"), 2, true},
		"give without pod":               {give("", "hbone"), 1, false},
		"give with a descriptor too few": {give("a", "hbone", "outbound"), 1, false},
		"give with one name twice":       {give("a", "hbone", "hbone"), 2, false},
		"give with an empty name":        {give("a", ""), 1, false},
		"give with too many sockets":     {give("a", many...), len(many), false},
		"take with a descriptor":         {&storepb.ProxyMessage{Payload: &storepb.ProxyMessage_Take{Take: &storepb.Take{Uid: "a"}}}, 1, false},
		"nothing":                        {&storepb.ProxyMessage{}, 0, false},
	} {
		b, err := proto.Marshal(c.message)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(b, c.descriptors); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range []*storepb.ProxyMessage{hello(storepb.Version_V1, 1), give("a", "hbone")} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, descriptors int) {
		m, err := parse(b, descriptors)
		if err != nil {
			return
		}
		if g := m.GetGive(); g != nil && (g.GetUid() == "" || len(g.GetNames()) != descriptors || descriptors > maxSockets) {
			t.Fatalf("accepted %v with %d descriptors", m, descriptors)
		}
	})
}

func FuzzLedger(f *testing.F) {
	f.Add(make([]byte, recordLength))
	f.Add(append([]byte{1, 2}, make([]byte, 2*recordLength)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		lost := readLedger(b)
		if len(lost) > len(b)/recordLength {
			t.Fatalf("%d connections in %d bytes", len(lost), len(b))
		}
		for _, l := range lost {
			if l.String() == "" || l.Direction != Inbound && l.Direction != Outbound {
				t.Fatalf("read %+v", l)
			}
		}
	})
}

func TestALedgerIsReadAsItsProxyWroteIt(t *testing.T) {
	record := make([]byte, recordLength)
	record[0], record[1] = 1, 2
	copy(record[8:], []byte{8, 7, 6, 5, 4, 3, 2, 1})
	source := netip.MustParseAddr("fd00::1").As16()
	destination := netip.MustParseAddr("::ffff:10.1.2.3").As16()
	copy(record[16:], source[:])
	copy(record[32:], destination[:])
	copy(record[48:], []byte{0x34, 0x12, 80, 0})
	copy(record[56:], []byte{0xd, 0xc, 0xb, 0xa})
	closed := make([]byte, recordLength)
	lost := readLedger(append(append(closed, record...), 1, 1))
	if len(lost) != 1 {
		t.Fatalf("read %v", lost)
	}
	l := lost[0]
	if l.inode != 0x0102030405060708 || l.Direction != Outbound || l.Source.String() != "[fd00::1]:4660" ||
		l.Destination.String() != "10.1.2.3:80" || l.Since.Unix() != 0x0a0b0c0d {
		t.Fatalf("read %+v", l)
	}
}
