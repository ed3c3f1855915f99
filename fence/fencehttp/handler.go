package fencehttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Options say how a handler is protected.
type Options struct {
	GateOptions

	// Resource says what a request is about and whether it is protected; nil: PathResource(0). An error refuses the request
	// with status 400; one matching [ErrResource] is told to the client, of others only that they occurred. It is called once a request.
	Resource func(r *http.Request) (resource string, protected bool, err error)
	// Log hears of refusals at level Warn, and of checks that could not be made at level Error; nil: nobody.
	Log *slog.Logger
}

// Protect returns next behind a door; see the package comment for what that promises. It returns an error matching [ErrOption]
// for options without a Check.
//
// next finds the claim by [ClaimFrom]. The turn, where turns are given, ends when next has returned or panicked.
func Protect(next http.Handler, o Options) (http.Handler, error) {
	gate, err := NewGate(o.GateOptions)
	if err != nil {
		return nil, err
	}
	if o.Resource == nil {
		o.Resource = PathResource(0)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &door{next: next, gate: gate, o: o}, nil
}

type door struct {
	next http.Handler
	gate *Gate
	o    Options
}

// ServeHTTP lets the request in, or answers it with a [Problem].
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := Call{Claims: r.Header.Values(ClaimHeader)}
	var err error
	if call.Resource, call.Protected, err = d.o.Resource(r); err != nil {
		if !errors.Is(err, ErrResource) {
			d.o.Log.ErrorContext(r.Context(), "a request's resource is not clear", "error", err)
			err = &ResourceError{Problem: "it could not be found out"}
		}
		d.refuse(w, r, call, err)
		return
	}
	served, err := d.gate.Do(r.Context(), call, func(ctx context.Context) error {
		d.next.ServeHTTP(w, r.WithContext(ctx))
		return nil
	})
	switch {
	case served && err != nil: // the handler returns none: it is the check's, which could not keep successors out to the end
		d.o.Log.WarnContext(r.Context(), "a request was served, and its check could not cover it to the end; a successor may have been let in before", "resource", call.Resource, "error", err)
	case err != nil:
		d.refuse(w, r, call, err)
	}
}

func (d *door) refuse(w http.ResponseWriter, r *http.Request, call Call, err error) {
	p := ProblemOf(call.Resource, err)
	level := slog.LevelWarn
	if p.Code == CodeUnavailable && r.Context().Err() == nil {
		level = slog.LevelError
	}
	d.o.Log.Log(r.Context(), level, "refused a request", "code", string(p.Code), "method", r.Method, "resource", call.Resource, "name", p.Name,
		"seen", p.Seen.String(), "newer", p.Newer.String(), "error", err)
	if err := p.Respond(w); err != nil && r.Context().Err() == nil {
		d.o.Log.WarnContext(r.Context(), "answering a refused request", "error", err)
	}
}

// IsSafe reports whether a request asks for nothing to be changed: its method is GET, HEAD, OPTIONS or TRACE, it does not ask to become
// a connection of another protocol, on which anything may be sent, and it carries no header that overrides the method, also
// with underscores, which many servers do not tell from hyphens.
func IsSafe(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
	default:
		return false
	}
	for header := range r.Header {
		switch strings.ReplaceAll(strings.ToLower(header), "_", "-") {
		case "upgrade", "x-http-method-override", "x-http-method", "x-method-override":
			return false
		}
	}
	return true
}

// PathResource takes the path for the resource, without the slashes around it; with segments > 0 only that many of its
// segments, so that with 2 "/orders/7/items" is about "orders/7", and a path with fewer about all of itself. Requests that are not safe are protected (see [IsSafe]).
//
// One thing must have one name, else two owners could be at work on it. So a path that another spelling would name too is
// refused, if a claim is sent or needed: escapes that need not be or that hide a separator, empty and dot segments, backslashes,
// semicolons, control characters, what is no UTF-8, and a target that is no path ("http:orders/7"). That some servers ignore case, or a suffix, is not known here.
func PathResource(segments int) func(r *http.Request) (resource string, protected bool, err error) {
	return func(r *http.Request) (string, bool, error) {
		protected := !IsSafe(r)
		if !protected && len(r.Header.Values(ClaimHeader)) == 0 {
			return "", false, nil
		}
		clean := strings.TrimSuffix(r.URL.Path, "/")
		if clean == "" && r.URL.Opaque == "" {
			return "/", protected, nil
		}
		if r.URL.RawPath != "" || !strings.HasPrefix(clean, "/") || path.Clean(clean) != clean || strings.ContainsAny(clean, `\;`) ||
			!utf8.ValidString(clean) || strings.ContainsFunc(clean, unicode.IsControl) {
			return "", protected, &ResourceError{Problem: "the path can be spelled in another way; send the plain one"}
		}
		parts := strings.Split(clean[1:], "/")
		if segments > 0 && len(parts) > segments {
			parts = parts[:segments]
		}
		return strings.Join(parts, "/"), protected, nil
	}
}
