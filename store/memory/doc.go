// Package memory is an authority in the memory of one process: for tests, for drills, and for programs whose
// owners and resources all live in one process. Nothing survives the process.
//
// Its core is a serial model of the contract in package lease: a state machine without I/O in which every
// request brings the time, the clock never goes back, and now >= expiry is expired. Every other store is
// compared with it, reply by reply; see package lease/leasetest. A smaller model beside it (serial_model_test.go) has
// one object that is coordinator and resource at once; it plays the story in testdata.
package memory
