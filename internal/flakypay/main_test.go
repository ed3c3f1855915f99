package flakypay

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// childFile is set in a process that is a provider, with its ledger's file.
const childFile = "FLAKYPAY_TEST_FILE"

func TestMain(m *testing.M) {
	if file := os.Getenv(childFile); file != "" {
		os.Exit(child(file))
	}
	goleak.VerifyTestMain(m)
}

// child serves until it is told to end, and says where.
func child(file string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(listener.Addr())
		err = Serve(ctx, listener, Config{File: file, Sync: true, Closes: true, HeaderFaults: true})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
