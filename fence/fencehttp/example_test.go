package fencehttp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
)

// A service that lets each order be changed by the owner of its lease alone, one request at a time.
func Example() {
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claim, _ := fencehttp.ClaimFrom(r.Context())
		fmt.Printf("%s %s under token %d\n", r.Method, r.URL.Path, claim.Token)
	})
	marks, err := fencehttp.NewMarks(1000)
	if err != nil {
		log.Fatal(err)
	}
	turns, err := fencehttp.NewSerializer(fencehttp.SerializeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	protected, err := fencehttp.Protect(orders, fencehttp.Options{
		GateOptions: fencehttp.GateOptions{Check: marks, Turns: turns},
		Resource:    fencehttp.PathResource(2), // /orders/7/items is about orders/7
	})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(protected)
	defer server.Close()

	// Two owners of the lease orders/7: the second has taken over from the first, which does not know that yet.
	where, err := url.Parse(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: &fencehttp.Transport{Hosts: []string{where.Host}}}
	put := func(token fence.Token) error {
		claim := fence.Claim{Authority: fence.ID{1}, Acquisition: fence.ID{2}, Name: "orders/7", Token: token}
		ctx := fencehttp.WithClaim(context.Background(), claim)
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/orders/7/items", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		return fencehttp.ErrorOf(resp)
	}
	for _, token := range []fence.Token{34, 33} {
		var refused *fence.RefusedError
		switch err := put(token); {
		case errors.As(err, &refused):
			fmt.Printf("token %d is refused: %d is newer\n", refused.Claim.Token, refused.Newer)
		case err != nil:
			fmt.Println(err)
		}
	}
	client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// PUT /orders/7/items under token 34
	// token 33 is refused: 34 is newer
}
