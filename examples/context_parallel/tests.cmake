# What four processes are held to. Rows of different lengths: one that fills every process's shard unevenly, one of a few
# tokens (contiguous: all in process 0; striped: none in process 3), one without any, one that ends in process 1's
# contiguous shard, one shorter than its query tokens. Memory "whole": what other processes hold is NaN.
set(program $<TARGET_FILE:context_parallel>)
set(four --mpirun ${MPIEXEC_EXECUTABLE} --processes 4 ${program})
set(ragged --check --threads 1 --repeat 1 --lengths 1003,3,0,400,2 --heads 8/2 --memory both)

context_parallel_test(agrees agree ${four} ${ragged} --dim 128 --query-len 4)
context_parallel_test(agrees_bf16 agree ${four} ${ragged} --dim 64 --query-len 3 --dtype bf16)
# Processes without any key at all, and a dim at which a partial is no multiple of 16 bytes.
context_parallel_test(agrees_empty agree ${four} --check --threads 1 --repeat 1 --lengths 2,1 --heads 3/3 --dim 12
  --memory both)
context_parallel_test(agrees_of_one agree --mpirun ${MPIEXEC_EXECUTABLE} --processes 1 ${program} --check --threads 1
  --repeat 1 --lengths 300,0 --heads 4/2 --dim 32)
context_parallel_test(bytes bytes ${four} --check --threads 1 --repeat 1 --lengths 64,9 --heads 4/1 --dim 128)

# The check notices a join without weights, a shard that is left out, a mask that knows only local positions, and a
# process that reads another one's keys.
foreach(fault equal-weights lost-shard local-causality)
  context_parallel_test(notices_${fault} notice ${four} ${ragged} --dim 64 --query-len 4 --plant ${fault})
endforeach()
context_parallel_test(notices_foreign-keys notice ${four} ${ragged} --memory whole --dim 64 --query-len 4
  --plant foreign-keys)
context_parallel_test(refuses refuse --mpirun ${MPIEXEC_EXECUTABLE} --processes 2 ${program})
