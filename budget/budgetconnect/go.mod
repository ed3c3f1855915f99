module github.com/tenure-go/tenure/budget/budgetconnect

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/tenure-go/tenure v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
)

replace github.com/tenure-go/tenure => ../..
