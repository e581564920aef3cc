import sys,time,torch,lowtide,lowtide.torch as lt
t=lowtide.tokens(sys.argv[1]); gb=lt.get_batch
out=[]
t0=time.perf_counter()
for r in range(40):
    a=time.perf_counter()
    for _ in range(2000): x,y=gb(t,12,1024)
    out.append((time.perf_counter()-a)/2000*1e6)
out.sort(); print(f"{sys.argv[2]}: best {out[0]:.1f} q1 {out[10]:.1f} median {out[20]:.1f}")
