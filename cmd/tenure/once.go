package main

import (
	"errors"
	"strings"

	"github.com/tenure-go/tenure/operation"
)

// onceKind is the kind of the operations that `tenure run --once` records.
const onceKind = "run"

// onceOptions are the flags of `tenure run` about an occurrence.
type onceOptions struct {
	key   string
	again bool // the command may run twice
	final bool // a failure is final
}

// onceRequest is what is stored with an occurrence. The command line is not in it: a failed run is repeated with one
// that was mended, hosts have other paths, and arguments may hold secrets. So an occurrence is the name and the key.
type onceRequest struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// onceResult is what is stored of a run that was done.
type onceResult struct {
	ExitCode int `json:"exit_code"`
}

// onceID is the id of an occurrence: NAME@KEY, with each @ in the name as %40 and each % as %25, so that the first @
// divides them, and two pairs never have one id.
func onceID(name, key string) string {
	return strings.NewReplacer("%", "%25", "@", "%40").Replace(name) + "@" + key
}

// onceSubmission asks for the operation of an occurrence.
func onceSubmission(name, key string) (operation.SubmitRequest, error) {
	body, err := operation.Canonical(onceRequest{Name: name, Key: key})
	if err != nil {
		return operation.SubmitRequest{}, err
	}
	req := operation.SubmitRequest{ID: onceID(name, key), Kind: onceKind, Request: body, Fingerprint: operation.FingerprintOf(onceKind, body)}
	err = req.Check()
	return req, err
}

// take checks the flags, for these names.
func (o *onceOptions) take(names []string, given func(flag string) bool) error {
	switch {
	case !given("once") && (given("again") || given("once-final")):
		return usagef("--again and --once-final say what --once does: give it a key")
	case !given("once"):
		return nil
	case o.key == "":
		return usagef("--once: no key given; it names the occurrence, such as --once 2026-11-30")
	case len(names) != 1:
		return usagef("--once goes with one name: an occurrence is a name and a key")
	}
	var invalid *operation.InvalidError
	_, err := onceSubmission(names[0], o.key)
	if errors.As(err, &invalid) {
		return usagef("--once %.80q: the occurrence %.80q: %s", o.key, onceID(names[0], o.key), invalid.Problem)
	}
	return err
}

// occurrenceStatus is what --json-status says of --once.
type occurrenceStatus struct {
	ID    string `json:"id"`
	State string `json:"state"` // as last known; empty where it is not
}
