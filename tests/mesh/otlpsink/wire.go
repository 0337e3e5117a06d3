package main

import "google.golang.org/protobuf/encoding/protowire"

// fields is a message by field number; of a repeated field it has the last value.
type fields map[int]any

func (f fields) text(number int) string {
	b, _ := f[number].([]byte)
	return string(b)
}

func (f fields) number(number int) uint64 {
	n, _ := f[number].(uint64)
	return n
}

func read(b []byte) (fields, error) {
	all := fields{}
	return all, walk(b, func(number int, value any) error {
		all[number] = value
		return nil
	})
}

// each gives every value of a field that holds bytes.
func each(b []byte, number int, do func([]byte) error) error {
	return walk(b, func(n int, value any) error {
		if inner, ok := value.([]byte); ok && n == number {
			return do(inner)
		}
		return nil
	})
}

// walk gives every field in its order: uint64 for numbers, []byte for all that has a length.
func walk(b []byte, do func(number int, value any) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var value any
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := do(int(number), value); err != nil {
			return err
		}
	}
	return nil
}
