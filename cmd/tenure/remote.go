package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// remote is an authority behind servers.
type remote struct {
	*client.Leases
	client *client.Client
}

func (r remote) Authority() fence.ID           { return r.client.Authority() }
func (r remote) Operations() operation.Backend { return r.client.Operations() }
func (r remote) Holds() holds                  { return r.client.Holds() }

// Shutdown closes connections that nobody uses.
func (r remote) Shutdown(context.Context) error {
	r.client.Close()
	return nil
}

// isRemote reports whether a URL is of a server.
func isRemote(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// locateRemote checks each of the servers' URLs, which stand with commas between them.
func locateRemote(text string) (location, error) {
	for one := range strings.SplitSeq(text, ",") {
		if u, err := url.Parse(one); err != nil || u.User != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return location{}, usagef("store %q: want http://HOST:PORT or https://HOST:PORT, several with commas between them, and no password", schemeOf(text)+"...")
		}
	}
	return location{url: text, shown: text, remote: true}, nil
}

// openRemote asks the servers which authority they serve.
func openRemote(ctx context.Context, l location, o openOptions) (store, error) {
	if o.adopt {
		return nil, usagef("--adopt is for a file of SQLite; %s is a server", l.shown)
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Endpoints: strings.Split(l.url, ",")})
	if err != nil {
		return nil, &storeError{err}
	}
	return remote{c.Leases(), c}, nil
}

// besideTheStore refuses a command that works on a store itself, where a server was named.
func (l location) besideTheStore(command string) error {
	if !l.remote {
		return nil
	}
	return usagef("%s works on a store itself, and %s is a server: run it where the server's store is, with that --store", command, l.shown)
}
