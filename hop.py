import asyncio,time,sys
async def h(): return 1
async def inline(n):
    t=time.perf_counter()
    for _ in range(n): await h()
    return (time.perf_counter()-t)/n*1e6
async def task(n):
    loop=asyncio.get_running_loop()
    t=time.perf_counter()
    for _ in range(n):
        await loop.create_task(h())
    return (time.perf_counter()-t)/n*1e6
async def eager(n):
    loop=asyncio.get_running_loop()
    t=time.perf_counter()
    for _ in range(n):
        k=asyncio.Task(h(),loop=loop,eager_start=True)
        if not k.done(): await k
    return (time.perf_counter()-t)/n*1e6
print(sys.version[:6], asyncio.run(inline(100000)), asyncio.run(task(50000)), asyncio.run(eager(50000)) if sys.version_info>=(3,12) else None)
