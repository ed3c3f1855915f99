// Package server serves an authority over HTTP: Connect, gRPC, gRPC-Web and JSON on one port, as api/tenure/v1 says.
//
// It adds nothing to what the stores promise, and takes nothing away: it decides nothing itself, keeps no state of leases, and any reply that is lost is healed by repeating the call. A server that was stopped and goes on
// can do no harm that its store would not refuse.
package server
