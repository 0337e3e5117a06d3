package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Refusal is a request that cannot be carried out, in Fortio's two parts: what failed, and why.
type Refusal struct {
	Message string
	Cause   error
	// Key is the request's key whose value was refused, empty where it is none in particular.
	Key string
	// Advice says in plain words what is wrong with the value, where Cause is not plain.
	Advice string
}

func (r *Refusal) Error() string {
	if r.Cause == nil {
		return r.Message
	}
	return r.Message + ": " + r.Cause.Error()
}

func (r *Refusal) Unwrap() error { return r.Cause }

// refusef refuses the value of a key.
func refusef(key, format string, args ...any) error {
	return &Refusal{Message: "parsing " + key, Cause: fmt.Errorf(format, args...), Key: key}
}

// refuseTime refuses the value of a key that is no time. Fortio calls the key by another name.
func refuseTime(key, fortio, text string, cause error) error {
	return &Refusal{Message: "parsing " + fortio, Cause: cause, Key: key, Advice: strconv.Quote(text) + " is not a time: write for example 10s or 1m30s"}
}

// maxValue bounds a single value, in bytes; a payload may be longer.
const maxValue = 8 << 10

// values are a request's keys: those of the query come before those of the body.
type values struct {
	query url.Values
	body  map[string]any
}

// readValues reads a JSON body at the path that the key jsonPath names; an empty body has no values.
func readValues(query url.Values, body []byte) (values, error) {
	v := values{query: query}
	if len(body) == 0 {
		return v, nil
	}
	const message = "body json deserialization error"
	var whole map[string]any
	if err := json.Unmarshal(body, &whole); err != nil {
		return v, &Refusal{Message: message, Cause: err}
	}
	at := whole
	path := strings.TrimLeft(query.Get("jsonPath"), ".")
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		path = strings.TrimLeft(path, ".")
		inner, found := at[name]
		if !found {
			return v, &Refusal{Message: message, Cause: fmt.Errorf("%q not found in json", name)}
		}
		var ok bool
		if at, ok = inner.(map[string]any); !ok {
			return v, &Refusal{Message: message, Cause: fmt.Errorf("%q path is not a map", name)}
		}
	}
	v.body = at
	return v, nil
}

// text is the value of a key, empty where there is none. Numbers and booleans of a JSON body count as their text ("on" for true).
func (v values) text(key string) (string, error) { return v.bounded(key, maxValue) }

func (v values) bounded(key string, most int) (string, error) {
	text := v.query.Get(key)
	if text == "" {
		switch value := v.body[key].(type) {
		case nil:
		case string:
			text = value
		case float64:
			text = strconv.FormatFloat(value, 'f', -1, 64)
		case bool:
			text = map[bool]string{true: "on", false: "off"}[value]
		default:
			return "", refusef(key, "the value is a list or an object: write a string")
		}
	}
	if len(text) > most {
		return "", refusef(key, "%d bytes; at most %d are taken", len(text), most)
	}
	if strings.ContainsRune(text, 0) {
		return "", refusef(key, "the value contains a NUL byte")
	}
	return text, nil
}

// flag is a key that is on or off.
func (v values) flag(key string) (bool, error) {
	text, err := v.text(key)
	if err != nil {
		return false, err
	}
	switch text {
	case "on":
		return true, nil
	case "", "off":
		return false, nil
	}
	return false, refusef(key, "%q: write on or off", text)
}

// number is a finite number within bounds, or absent where the key is.
func (v values) number(key string, absent, least, most float64) (float64, error) {
	text, err := v.text(key)
	if err != nil || strings.TrimSpace(text) == "" {
		return absent, err
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0, refusef(key, "%q is not a number", text)
	}
	if !(n >= least && n <= most) {
		return 0, refusef(key, "%s: write a number from %g to %g", text, least, most)
	}
	return n, nil
}

// count is a whole number from 0 to most.
func (v values) count(key string, most int64) (int64, error) {
	text, err := v.text(key)
	if err != nil || strings.TrimSpace(text) == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, refusef(key, "%q is not a whole number", text)
	}
	if n < 0 || n > most {
		return 0, refusef(key, "%d: write a whole number from 0 to %d", n, most)
	}
	return n, nil
}

// headers are the fields of the body's list and of the query's H.
func (v values) headers() ([]string, error) {
	var out []string
	switch list := v.body["headers"].(type) {
	case nil:
	case []any:
		for _, entry := range list {
			text, ok := entry.(string)
			if !ok {
				return nil, refusef("headers", "json headers must be an array of strings (got %T: %v)", entry, entry)
			}
			out = append(out, text)
		}
	default:
		return nil, refusef("headers", "json headers is %T: write an array of strings", list)
	}
	for _, text := range v.query["H"] {
		if text != "" {
			out = append(out, text)
		}
	}
	if len(out) > maxHeaders {
		return nil, refusef("headers", "%d fields; at most %d are taken", len(out), maxHeaders)
	}
	for _, text := range out {
		if len(text) > maxValue {
			return nil, refusef("headers", "a field of %d bytes; at most %d are taken", len(text), maxValue)
		}
	}
	return out, nil
}

// runID is the run that a request is about; 0 means all.
func (v values) runID() (int64, error) {
	text, err := v.text("runid")
	if err != nil || text == "" {
		return 0, err
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 0 {
		return 0, &Refusal{Message: "parsing runid", Cause: errors.New(strconv.Quote(text) + " is not a run's number: take RunID from the answer to run")}
	}
	return id, nil
}
